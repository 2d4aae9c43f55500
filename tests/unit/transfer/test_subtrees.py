"""How a tree is divided: every path in exactly one subtree, within a limit of listings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perago.testing import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.inventory import Source, projected
from perago.transfer.subtrees import WHOLE, Subtree, split
from support.trees import keys


@dataclass
class Tree:
    """A made-up tree that counts how it is looked at."""

    paths: Iterable[str]
    folders: list[str] = field(default_factory=list)
    entries: int = 0

    def level(self, start: str) -> Iterator[str]:
        self.folders.append(start)
        seen = set()
        for path in sorted(self.paths):
            if path.startswith(start) and path != start:
                name, slash, _ = path[len(start) :].partition("/")
                if (entry := start + name + slash) not in seen:
                    seen.add(entry)
                    self.entries += 1
                    yield entry


def starts(subtrees: list[Subtree]) -> list[str]:
    return [subtree.start + ("" if subtree.is_deep else ".") for subtree in subtrees]


DAYS = [f"y{year}/d{day}/{part}" for year in range(3) for day in range(10) for part in range(2)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (1, [""]),
        (2, [".", "y0/", "y1/", "y2/"]),
        (5, [".", "y0/.", "y1/", "y2/", *[f"y0/d{n}/" for n in range(10)]]),
    ],
)
def test_a_tree_is_divided_breadth_first_until_there_are_enough(
    wanted: int, found: list[str]
) -> None:
    assert starts(split(Tree(DAYS).level, wanted)) == found


def test_a_tree_that_cannot_be_divided_further_is_left_as_it_is() -> None:
    subtrees = split(Tree(DAYS).level, 1000)
    assert len(subtrees) == 1 + 3 + 30
    assert [subtree for subtree in subtrees if not subtree.is_deep] == [
        Subtree(start, is_deep=False) for start in ("", "y0/", "y1/", "y2/")
    ]


def test_a_flat_folder_and_an_empty_one_are_one_subtree() -> None:
    assert split(Tree([str(number) for number in range(5000)]).level, 10) == [WHOLE]
    assert split(Tree([]).level, 10) == [WHOLE]


def test_a_folder_with_too_many_entries_is_not_divided_but_those_beside_it_are() -> None:
    flat = [f"flat/{number:05}" for number in range(3000)] + ["flat/sub/x"]
    tree = Tree([*flat, "other/a/1", "other/b/1"])
    assert starts(split(tree.level, 100, most=5000)) == [
        *[".", "flat/", "other/.", "other/a/", "other/b/"],
    ]
    assert tree.entries < 5000


def test_a_chain_of_folders_costs_a_bounded_number_of_looks() -> None:
    tree = Tree(["d/" * 500 + "file"])
    subtrees = split(tree.level, 1000)
    assert len(tree.folders) == 100
    assert len(subtrees) == 101
    assert subtrees[-1] == Subtree("d/" * 100)


def test_a_unit_knows_the_closest_file_in_whose_place_it_is() -> None:
    tree = Tree(["a", "a/b/c", "a/x", "a/x/y/z", "a-b/c", "d/e"])
    above = {subtree.start: subtree.above for subtree in split(tree.level, 100)}
    assert above == {
        "": None,
        "a-b/": None,
        "d/": None,
        "a/": "a",
        "a/b/": "a",
        "a/x/": "a/x",
        "a/x/y/": "a/x",
    }


@given(
    st.sets(keys | keys.map(lambda key: key + "/"), max_size=12),
    st.integers(1, 30),
    st.sampled_from(["", "a", "a/b", "_lakefs_actions"]),
)
@example(listed={"/?", "?", "//x"}, wanted=20, prefix="")
def test_the_subtrees_of_a_listing_give_together_what_it_gives(
    listed: set[str], wanted: int, prefix: str
) -> None:
    lake = InMemoryLake()
    lake.create_repository("repo")
    inside = {f"{prefix}/{key}" if prefix else key for key in listed}
    extra = {"a", "a/b", ".perago-attempt.json", "a/.perago-attempt.json", "_lakefs_actions/x"}
    # A lone surrogate has no place in the order of the bytes and is never listed.
    for key in (key for key in inside | extra if "\ud800" not in key):
        lake.objects.put("repo", "main", key, StoredObject(b"" if key.endswith("/") else b"1"))
    source = Source("repo", "main", prefix)
    subtrees = split(lambda start: source.level(lake.objects, start), wanted)
    found = [
        entry.item.key
        for subtree in subtrees
        for entry in projected(source.listing(lake.objects, subtree), prefix)
    ]
    whole = [entry.item.key for entry in projected(source.listing(lake.objects), prefix)]
    assert sorted(found) == sorted(whole)
