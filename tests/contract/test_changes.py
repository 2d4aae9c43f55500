"""Diffs, as a Spark task's publication reads them: of a branch with its HEAD, and of commits."""

from __future__ import annotations

import pytest

from perago.errors import NotFoundError
from perago.protocol.ports import Change
from support.lakes import LakeUnderTest

MISSING = "0" * 64


def uncommitted(lake: LakeUnderTest, branch: str = "main") -> list[Change]:
    return list(lake.objects.uncommitted(lake.staging(branch)))


def changes(lake: LakeUnderTest, base: str, commit: str) -> list[Change]:
    return list(lake.objects.changes(lake.repository, base, commit))


def without_sizes(found: list[Change]) -> list[tuple[str, str]]:
    return [(change.key, change.kind) for change in found]


def test_what_a_branch_holds_beyond_its_head_is_listed_in_key_order(lake: LakeUnderTest) -> None:
    for key in ("changed", "removed", "same"):
        lake.put("main", key, b"1")
    lake.commit("main")
    assert uncommitted(lake) == []
    lake.put("main", "changed", b"22")
    lake.put("main", "dir/added", b"333")
    lake.objects.delete(lake.repository, "main", ["removed"])
    found = uncommitted(lake)
    assert without_sizes(found) == [
        ("changed", "changed"),
        ("dir/added", "added"),
        ("removed", "removed"),
    ]
    assert [change.size for change in found if change.kind == "added"] == [3]


def test_writing_and_deleting_again_leaves_no_change(lake: LakeUnderTest) -> None:
    lake.put_and_commit("main", "a", b"1")
    lake.put("main", "b", b"2")
    lake.objects.delete(lake.repository, "main", ["b", "never-there"])
    lake.put("main", "a", b"1")
    assert uncommitted(lake) == []
    assert not lake.is_dirty()


def test_commits_are_compared_in_the_given_direction(lake: LakeUnderTest) -> None:
    first = lake.put_and_commit("main", "a", b"1")
    lake.put("main", "b", b"22")
    lake.objects.delete(lake.repository, "main", ["a"])
    second = lake.commit("main").commit
    assert without_sizes(changes(lake, first, second)) == [("a", "removed"), ("b", "added")]
    assert without_sizes(changes(lake, second, first)) == [("a", "added"), ("b", "removed")]
    assert changes(lake, second, second) == []


def test_commits_are_compared_below_a_prefix_and_with_any_ref(lake: LakeUnderTest) -> None:
    first = lake.put_and_commit("main", "dir/a", b"1")
    lake.lake.tag(lake.repository, "monday", first)
    for key in ("dir/b", "dir-b", "other"):
        lake.put("main", key, b"2")
    second = lake.commit("main").commit
    for base in (first, "monday"):
        found = lake.objects.changes(lake.repository, base, second, "dir/")
        assert without_sizes(list(found)) == [("dir/b", "added")]


def test_what_is_written_after_a_commit_does_not_show_in_it(lake: LakeUnderTest) -> None:
    first = lake.put_and_commit("main", "a", b"1")
    second = lake.put_and_commit("main", "b", b"2")
    lake.put("main", "c", b"3")
    assert without_sizes(changes(lake, first, second)) == [("b", "added")]


def test_more_changes_than_a_page_holds_are_all_listed(lake: LakeUnderTest) -> None:
    first = lake.put_and_commit("main", "a", b"1")
    keys = [f"k{number:04}" for number in range(1005)]
    for key in keys:
        lake.put("main", key, b"")
    assert [change.key for change in uncommitted(lake)] == keys
    second = lake.commit("main").commit
    assert [change.key for change in changes(lake, first, second)] == keys


def test_a_comparison_of_what_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    first = lake.put_and_commit("main", "a", b"1")
    with pytest.raises(NotFoundError):
        uncommitted(lake, "no-such-branch")
    for base, commit in ((MISSING, first), (first, MISSING)):
        with pytest.raises(NotFoundError):
            changes(lake, base, commit)
