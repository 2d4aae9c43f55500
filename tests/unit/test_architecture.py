"""docs/architecture.md says what is: its files exist, and the way of an attempt stays short."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "perago"
MOST_FILES = 34


def test_the_way_of_a_file_attempt_names_files_that_exist_and_not_too_many() -> None:
    rows = re.findall(r"^\| (\d+) \| `([\w/.]+)` \|", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert all((PACKAGE / file).is_file() for _, file in rows)
    assert 20 < len(rows) <= MOST_FILES


def test_every_package_has_a_row() -> None:
    table = PAGE[PAGE.index("| package | holds |") : PAGE.index("Where this differs")]
    named = set(
        re.findall(r"`([\w.]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)))
    )
    hidden = ("_", "py.typed")
    there = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith(hidden)}
    assert named == there
