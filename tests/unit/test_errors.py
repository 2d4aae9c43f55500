from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago import errors
from perago.errors import PeragoError

DOCS = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def tree(root: type[PeragoError]) -> Iterator[type[PeragoError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


TREE = list(tree(PeragoError))


def test_every_error_of_the_module_is_in_the_tree_and_in_its_drawing() -> None:
    defined = {
        it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, Exception)
    }
    assert defined == set(TREE)
    drawn = re.findall(r"^[│ ├└─]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    assert {kind.__name__ for kind in TREE} <= set(drawn)


def test_no_two_errors_share_a_code() -> None:
    shared = [code for code, count in Counter(kind.code for kind in TREE).items() if count > 1]
    assert shared == []


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_an_error_has_a_code_of_its_own_a_hint_and_a_docs_entry(kind: type[PeragoError]) -> None:
    assert "code" in vars(kind), "an inherited code would name another error"
    assert re.fullmatch(r"PRG-\d{3}", kind.code)
    assert kind.hint.strip().endswith(".")
    assert kind.exit_code in {1, 2, 3, 4, 5}
    _, heading, entry = DOCS.partition(f"## {kind.code} {kind.__name__}\n")
    assert heading
    assert "**Do:** " in entry.partition("\n## ")[0]


def test_the_docs_name_no_error_that_is_gone() -> None:
    documented = re.findall(r"^## (PRG-\d+) (\w+)$", DOCS, re.MULTILINE)
    assert sorted(documented) == sorted((kind.code, kind.__name__) for kind in TREE)


def test_a_hint_given_with_an_error_replaces_the_general_one() -> None:
    assert PeragoError("x", hint="Do this.").hint == "Do this."
    assert PeragoError("x").hint == PeragoError.hint
