"""The lake's log, and commits that are taken back or repeated."""

from __future__ import annotations

import pytest

from perago.errors import ConflictError, NotFoundError
from perago.lakefs.control import LakeFSControl
from perago.testing import InMemoryLake
from support.lakes import LakeUnderTest

MISSING = "0" * 64


def control(lake: LakeUnderTest) -> LakeFSControl | InMemoryLake:
    assert isinstance(lake.lake, LakeFSControl | InMemoryLake)
    return lake.lake


def test_a_branchs_log_is_read_by_first_parents_newest_first(lake: LakeUnderTest) -> None:
    root = lake.head()
    one = lake.put_and_commit("main", "a")
    lake.staged("side", one, "b", b"1")
    two = lake.merge(lake.staged("other", one, "c", b"1"), metadata={"key": "ü"})
    lake.lake.tag(lake.repository, "a-tag", two)
    log = control(lake).log(lake.repository, "main", 10)
    assert [commit.id for commit in log] == [two, one, root]
    assert log[0] == lake.lake.get_commit(lake.repository, two)
    assert [commit.id for commit in control(lake).log(lake.repository, "main", 2)] == [two, one]
    for name in ("no-such-branch", "a-tag", one):
        with pytest.raises(NotFoundError):
            control(lake).log(lake.repository, name, 10)


def test_the_ancestry_of_a_commit_begins_with_it_and_ends_with_the_first(
    lake: LakeUnderTest,
) -> None:
    root = lake.head()
    one = lake.put_and_commit("main", "a")
    two = lake.merge(lake.staged("side", one, "b", b"1"), metadata={"key": "ü"})
    lake.put_and_commit("main", "c")

    def ancestry(amount: int) -> list[str]:
        return [it.id for it in lake.lake.ancestry(lake.repository, two, amount)]

    assert ancestry(10) == [two, one, root]
    assert ancestry(3) == [two, one, root]
    assert ancestry(2) == [two, one]
    assert lake.lake.ancestry(lake.repository, two, 1) == [
        lake.lake.get_commit(lake.repository, two)
    ]
    with pytest.raises(NotFoundError):
        lake.lake.ancestry(lake.repository, MISSING, 10)


def test_a_repository_has_a_default_branch(lake: LakeUnderTest) -> None:
    assert control(lake).default_branch(lake.repository) == "main"
    with pytest.raises(NotFoundError):
        control(lake).default_branch("no-such-repository")


def test_what_a_commit_changed_is_taken_back_and_repeated(lake: LakeUnderTest) -> None:
    lake.put("main", "changed", b"1")
    base = lake.put_and_commit("main", "removed", b"1")
    lake.put("main", "changed", b"2")
    lake.put("main", "added", b"2")
    lake.objects.delete(lake.repository, "main", ["removed"])
    commit = lake.commit("main").commit
    later = lake.put_and_commit("main", "later", b"3")
    lake.branch("side", later)

    control(lake).revert(lake.staging("side"), commit)

    assert lake.keys("side") == ["changed", "later", "removed"]
    assert lake.read("side", "changed") == b"1"
    # There is nothing left to take back: a commit without a change.
    before = lake.head("side")
    control(lake).revert(lake.staging("side"), commit)
    assert lake.lake.is_same(lake.repository, before, lake.head("side"))

    read = lake.lake.get_commit(lake.repository, commit)
    control(lake).cherry_pick(lake.staging("side"), commit)

    assert lake.lake.get_commit(lake.repository, commit) == read
    assert lake.keys("side") == ["added", "changed", "later"]
    assert lake.lake.is_same(lake.repository, lake.head("side"), later)
    control(lake).cherry_pick(lake.staging("side"), commit)
    assert lake.lake.is_same(lake.repository, lake.head("side"), later)
    lake.branch("old", base)
    control(lake).cherry_pick(lake.staging("old"), commit)
    assert lake.lake.is_same(lake.repository, lake.head("old"), commit)


def test_what_others_changed_is_never_taken_back_or_overwritten(lake: LakeUnderTest) -> None:
    base = lake.put_and_commit("main", "a", b"1")
    commit = lake.put_and_commit("main", "a", b"2")
    later = lake.put_and_commit("main", "a", b"3")
    lake.branch("side", later)
    with pytest.raises(ConflictError):
        control(lake).revert(lake.staging("side"), commit)
    other = lake.staged("other", base, "a", b"4").commit
    with pytest.raises(ConflictError):
        control(lake).cherry_pick(lake.staging("side"), other)
    assert lake.head("side") == later
    for call in (control(lake).revert, control(lake).cherry_pick):
        with pytest.raises(NotFoundError):
            call(lake.staging("side"), MISSING)
        with pytest.raises(NotFoundError):
            call(lake.staging("no-such-branch"), commit)
