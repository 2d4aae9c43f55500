"""docs/configuration.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from perago.settings.sources import LAKECTL_FILE_VARIABLE

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_names_the_variable_that_chooses_lakectl_s_file() -> None:
    assert LAKECTL_FILE_VARIABLE in PAGE.read_text(encoding="utf-8")
