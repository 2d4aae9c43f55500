"""Merges as LakeFS makes them: three ways, on whatever HEAD is by then, gated by the hook."""

from __future__ import annotations

import threading

import pytest

from perago.errors import (
    BackendError,
    BackendRefusedError,
    ConflictError,
    NotFoundError,
    PreconditionError,
)
from perago.protocol.record import EXPECTED_HEAD
from perago.protocol.workspace import StagedWorkspace
from support.lakes import LakeUnderTest

MISSING = "0" * 64


def test_a_merge_makes_one_commit_whose_only_parent_is_head(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a", b"1")
    lake.branch("side", ref)
    lake.put("side", "b", b"2")
    lake.commit("side")
    lake.objects.delete(lake.repository, "side", ["a"])
    staged = lake.commit("side")
    merged = lake.merge(staged, metadata={"perago.task_id": "t"})
    commit = lake.lake.get_commit(lake.repository, merged)
    assert lake.head() == merged != staged.commit
    assert commit.parents == (ref,)
    assert commit.metadata["perago.task_id"] == "t"
    assert lake.keys("main") == ["b"]


def test_a_merge_takes_what_its_licence_has_committed_by_then_and_no_more(
    lake: LakeUnderTest,
) -> None:
    """Which is why the published commit is compared with the staged one afterwards."""
    staged = lake.staged("side", lake.head(), "a", b"1")
    lake.put_and_commit("side", "later")
    lake.put("side", "uncommitted")
    merged = lake.merge(staged)
    assert lake.keys("main") == ["a", "later"]
    assert not lake.lake.is_same(lake.repository, merged, staged.commit)


def test_a_merge_whose_licence_was_withdrawn_is_not_found(lake: LakeUnderTest) -> None:
    head = lake.head()
    staged = lake.staged("side", head, "a", b"1")
    lake.lake.delete_branch(lake.staging("side"))
    with pytest.raises(NotFoundError):
        lake.merge(staged)
    assert lake.head() == head


def test_disjoint_changes_land_silently_on_top_of_each_other(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a")
    one = lake.staged("one", ref, "one", b"1")
    two = lake.staged("two", ref, "two", b"2")
    first = lake.merge(one)
    second = lake.merge(two)
    assert lake.lake.get_commit(lake.repository, second).first_parent == first
    assert lake.keys("main") == ["a", "one", "two"]


def test_the_same_change_on_both_sides_is_no_conflict(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a")
    first = lake.merge(lake.staged("one", ref, "same", b"1"))
    second = lake.merge(lake.staged("two", ref, "same", b"1"))
    assert lake.lake.get_commit(lake.repository, second).first_parent == first


@pytest.mark.parametrize("theirs", [b"theirs", None], ids=["changed", "deleted"])
def test_different_changes_of_one_object_are_a_conflict(
    lake: LakeUnderTest, theirs: bytes | None
) -> None:
    ref = lake.put_and_commit("main", "a", b"before")
    staged = lake.staged("side", ref, "a", b"ours")
    if theirs is None:
        lake.objects.delete(lake.repository, "main", ["a"])
    else:
        lake.put("main", "a", theirs)
    head = lake.commit("main").commit
    with pytest.raises(ConflictError):
        lake.merge(staged)
    assert lake.head() == head


def test_a_change_of_user_metadata_is_a_change(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a", b"1")
    lake.branch("side", ref)
    lake.put("side", "a", b"1", metadata={"k": "v"})
    lake.merge(lake.commit("side"))
    assert [item.metadata for item in lake.objects.list(lake.repository, "main", "")] == [
        {"k": "v"}
    ]


def test_merging_the_same_commit_twice_lands_a_second_commit(lake: LakeUnderTest) -> None:
    """So a merge is never repeated blindly: the server would not even notice."""
    staged = lake.staged("side", lake.head(), "a", b"1")
    first = lake.merge(staged)
    second = lake.merge(staged)
    assert lake.lake.get_commit(lake.repository, second).first_parent == first


def test_merging_an_ancestor_is_refused_because_nothing_changes(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a")
    head = lake.put_and_commit("main", "b")
    for name, commit_id in (("one", ref), ("two", head)):
        lake.branch(name, commit_id)
        with pytest.raises(BackendRefusedError):
            lake.merge(StagedWorkspace(lake.repository, name, commit_id))
    assert lake.head() == head


def test_merging_into_or_from_what_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    staged = lake.staged("side", lake.head(), "a", b"1")
    with pytest.raises(NotFoundError):
        lake.merge(staged, "no-such-branch")
    with pytest.raises(NotFoundError):
        lake.merge(StagedWorkspace(lake.repository, "no-such-branch", staged.commit))


def test_a_dirty_target_refuses_a_merge(lake: LakeUnderTest) -> None:
    head = lake.head()
    staged = lake.staged("side", head, "a", b"1")
    lake.put("main", "uncommitted")
    with pytest.raises(BackendRefusedError):
        lake.merge(staged)
    assert lake.head() == head


def test_the_hook_refuses_a_merge_that_expects_another_head(lake: LakeUnderTest) -> None:
    ref = lake.install_fence()
    one = lake.staged("one", ref, "one", b"1")
    two = lake.staged("two", ref, "two", b"2")
    first = lake.merge(one, metadata={EXPECTED_HEAD: ref})
    with pytest.raises(PreconditionError, match="perago fence: expected"):
        lake.merge(two, metadata={EXPECTED_HEAD: ref})
    assert lake.head() == first


def test_the_hook_lets_other_tools_merge(lake: LakeUnderTest) -> None:
    ref = lake.install_fence()
    lake.merge(lake.staged("one", ref, "one", b"1"))
    lake.merge(lake.staged("two", ref, "two", b"2"), metadata={"tool": "other"})
    assert lake.keys("main", "") == ["_lakefs_actions/perago_fence.yaml", "one", "two"]


def test_the_hook_is_read_from_the_source_commit(lake: LakeUnderTest) -> None:
    without = lake.staged("side", lake.head(), "a", b"1")
    lake.install_fence()
    lake.merge(without, metadata={EXPECTED_HEAD: MISSING})
    assert "a" in lake.keys("main")


def test_of_racing_merges_with_the_hook_exactly_one_lands(lake: LakeUnderTest) -> None:
    ref = lake.install_fence()
    staged = [lake.staged(f"race-{n}", ref, f"object-{n}", b"1") for n in range(6)]
    barrier = threading.Barrier(len(staged))
    landed: list[str] = []
    refused: list[BackendError] = []

    def race(one: StagedWorkspace) -> None:
        barrier.wait(timeout=30)
        try:
            landed.append(lake.merge(one, metadata={EXPECTED_HEAD: ref}))
        except BackendError as error:
            refused.append(error)

    threads = [threading.Thread(target=race, args=(one,)) for one in staged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(landed) == 1
    assert len(refused) == len(staged) - 1
    assert lake.head() == landed[0]
    assert lake.lake.get_commit(lake.repository, landed[0]).first_parent == ref
