"""Files for Spark: checked with the settings, importable here, sent with each session."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from perago.errors import ConfigurationError
from perago.settings import load_settings
from perago.spark.files import SparkFiles


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "perago_words_of_a_test.py"
    file.write_text("WORDS = 3\n")
    return file


def test_paths_are_made_absolute_and_keep_the_names_of_their_folders(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.tar.gz").touch()
    monkeypatch.setenv("PERAGO_SPARK_PY_FILES", f" {module.name} ,{module}")
    monkeypatch.setenv("PERAGO_SPARK_ARCHIVES", "words.tar.gz#words")
    found = SparkFiles.of(load_settings())
    assert found == SparkFiles((str(module),) * 2, (f"{tmp_path}/words.tar.gz#words",))


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PERAGO_SPARK_PY_FILES", "absent.py", "there is no file"),
        ("PERAGO_SPARK_PY_FILES", "notes.txt", "write files (.py, .zip, .egg)"),
        ("PERAGO_SPARK_ARCHIVES", "absent.zip#x", "there is no file"),
        ("PERAGO_SPARK_ARCHIVES", "words.zip#", "such as words.tar.gz#words"),
        ("PERAGO_SPARK_ARCHIVES", "words.zip#a/b", "such as words.tar.gz#words"),
        ("PERAGO_SPARK_ARCHIVES", ",", "such as words.tar.gz#words"),
    ],
)
def test_what_cannot_be_sent_is_named_before_anything_starts(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert f"{variable} (environment): " in str(caught.value)
    assert said in str(caught.value)


def test_modules_can_be_imported_and_what_is_there_already_wins(module: Path) -> None:
    before = list(sys.path)
    files = SparkFiles((str(module), "/somewhere/libs.zip"))
    files.make_importable()
    files.make_importable()
    assert sys.path == [*before, str(module.parent), "/somewhere/libs.zip"]
    assert importlib.import_module(module.stem).WORDS == 3


class Session:
    def __init__(self) -> None:
        self.sent: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    def addArtifacts(self, *names: str, **kind: Any) -> None:  # noqa: N802  pyspark's name
        self.sent.append((names, kind))


def test_a_session_gets_each_file_as_what_it_is() -> None:
    session = Session()
    SparkFiles(("a.py", "b.zip"), ("c.tgz#d",)).add_to(session)
    assert session.sent == [
        (("a.py", "b.zip"), {"pyfile": True}),
        (("c.tgz#d",), {"archive": True}),
    ]
    nothing = Session()
    SparkFiles().add_to(nothing)
    assert nothing.sent == []
