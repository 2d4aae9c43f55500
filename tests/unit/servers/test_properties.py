"""Spark's own files are read as Java reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.errors import ConfigurationError
from perago.servers.properties import read_properties, write_properties


def read(folder: Path, text: str) -> dict[str, str]:
    file = folder / "spark.properties"
    file.write_bytes(text.encode())
    return read_properties(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spark.a=1\nspark.b: 2\nspark.c   3\n", {"spark.a": "1", "spark.b": "2", "spark.c": "3"}),
        ("# no\n! neither\n\n  spark.a = x y \n", {"spark.a": "x y "}),
        ("spark.a=one \\\n  two\n", {"spark.a": "one two"}),
        ("spark.a=back\\\\slash\\tand\\u0041\n", {"spark.a": "back\\slash\tandA"}),
        ("spark.a=path\\\\\nspark.b=2\n", {"spark.a": "path\\", "spark.b": "2"}),
        ("spark.a\n", {"spark.a": ""}),
        ("spark.a=1\nspark.a=2\n", {"spark.a": "2"}),
        ("spark.url=jdbc:x=y\n", {"spark.url": "jdbc:x=y"}),
    ],
)
def test_entries_are_read(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    assert read(tmp_path, text) == expected


def test_a_line_without_a_key_is_an_error_that_names_the_line_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.properties:2: not a") as caught:
        read(tmp_path, "spark.a=1\n= hidden\n")
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere cannot be read: No such file"):
        read_properties(tmp_path / "nowhere")


@given(value=st.text(st.characters(codec="utf-8")))
def test_no_value_can_add_an_entry_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    folder = tmp_path_factory.mktemp("properties")
    entries = {"spark.a": value, "spark.connect.authenticate.token": "t"}
    assert read(folder, write_properties(entries)) == entries
