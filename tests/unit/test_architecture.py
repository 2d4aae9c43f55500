"""docs/architecture.md says what is: its files exist, and the way of an attempt stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "perago"
MOST_FILES = 34
MOST_LINES = 400
ROWS = re.findall(r"^\| (\d+) \| `([\w/.]+)` \|", PAGE, re.MULTILINE)


def test_the_way_of_a_file_attempt_names_files_that_exist_and_not_too_many() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert all((PACKAGE / file).is_file() for _, file in ROWS)
    assert 20 < len(ROWS) <= MOST_FILES


def test_no_file_that_an_attempt_passes_is_dropped_unseen() -> None:
    listed, left_out = [file for _, file in ROWS], left_out_files()
    named = [*listed, *left_out]
    assert sorted(named) == sorted(set(named))
    assert all((PACKAGE / file).is_file() for file in left_out)
    imported = {file for row in listed for file in imported_files(PACKAGE / row)}
    assert imported - set(named) == set()


def left_out_files() -> list[str]:
    table = PAGE[PAGE.index("| left out, because | files |") : PAGE.index("A Spark task takes")]
    return re.findall(r"`([\w/]+\.py)`", table)


def imported_files(path: Path) -> Iterator[str]:
    """Find the files of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from filter(None, (file_of(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "no relative imports"
            for alias in node.names:
                # A module of the package that is named, or something in a module.
                if found := file_of(f"{node.module}.{alias.name}") or file_of(node.module):
                    yield found


def file_of(module: str) -> str | None:
    """Return the file of a module of Perago; None for what is none."""
    first, *rest = module.split(".")
    if first != PACKAGE.name:
        return None
    base = PACKAGE.joinpath(*rest)
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((str(it.relative_to(PACKAGE)) for it in candidates if it.is_file()), None)


def test_no_file_is_longer_than_one_idea() -> None:
    lines = {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8").count("\n")
        for path in PACKAGE.rglob("*.py")
    }
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}
    rules = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"none in `src/` has more than {MOST_LINES} lines" in rules


def test_every_package_has_a_row() -> None:
    table = PAGE[PAGE.index("| package | holds |") : PAGE.index("Where this differs")]
    named = set(
        re.findall(r"`([\w.]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)))
    )
    hidden = ("_", "py.typed")
    there = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith(hidden)}
    assert named == there
