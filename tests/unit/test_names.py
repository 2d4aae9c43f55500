"""One name, one definition: no two classes or type aliases of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "perago"


def defined_in(source: str) -> Iterator[str]:
    """Return the names of the classes and type aliases at the level of a module.

    A type alias is a name like ``CacheEntry`` that is assigned anything but a call. A
    ``TypeVar`` is a call: it means something in its module only.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from (name for name in names if name[0].isupper() and not name.isupper())


def test_every_class_and_type_alias_has_one_definition() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in defined_in(path.read_text(encoding="utf-8")):
            if not name.startswith("_"):
                found[name].append(str(path.relative_to(PACKAGE)))
    assert len(found) > 300
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    "line",
    [
        "class Found: ...",
        "Found = int | str",
        "Found: TypeAlias = int",
        "Found = Annotated[str, 1]",
        "Found = Other",
    ],
)
def test_what_counts_as_a_definition(line: str) -> None:
    assert [*defined_in(line)] == ["Found"]


@pytest.mark.parametrize(
    "line", ["Found = TypeVar('Found')", "FOUND = 1", "found = int", "def F(): ..."]
)
def test_what_is_no_definition(line: str) -> None:
    assert not [*defined_in(line)]
