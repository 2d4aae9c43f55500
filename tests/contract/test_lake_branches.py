"""The lake's commits, branches and tags: success and each kind of refusal."""

from __future__ import annotations

import pytest

from perago.errors import (
    BackendDeniedError,
    BackendRefusedError,
    ConflictError,
    NotFoundError,
)
from perago.lakefs.fence import ACTION_PATH
from support.lakes import PROTECTED, LakeUnderTest

MISSING = "0" * 64


def test_a_commit_is_read_with_its_parents_and_metadata(lake: LakeUnderTest) -> None:
    root = lake.head()
    lake.put("main", "a")
    made = lake.commit("main", {"perago.task_id": "t1", "other": "ü"})
    commit = lake.lake.get_commit(lake.repository, made.commit)
    assert commit.id == made.commit == lake.head()
    assert commit.parents == (root,)
    assert commit.metadata == {"perago.task_id": "t1", "other": "ü"}


def test_the_first_commit_of_a_repository_has_no_parent(lake: LakeUnderTest) -> None:
    assert lake.lake.get_head(lake.repository, "main").first_parent is None


def test_only_the_full_id_of_a_commit_is_taken(lake: LakeUnderTest) -> None:
    head = lake.put_and_commit("main", "a")
    lake.lake.tag(lake.repository, "a-tag", head)
    for ref in (head[:12], "main", "a-tag", MISSING, head.upper()):
        with pytest.raises(NotFoundError):
            lake.lake.get_commit(lake.repository, ref)


def test_a_repository_or_branch_that_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    head = lake.head()
    with pytest.raises(NotFoundError):
        lake.lake.get_commit("no-such-repository", head)
    with pytest.raises(NotFoundError):
        lake.head("no-such-branch")
    with pytest.raises(NotFoundError):
        lake.is_dirty("no-such-branch")


def test_a_commit_without_changes_is_refused(lake: LakeUnderTest) -> None:
    head = lake.put_and_commit("main", "a", b"1")
    with pytest.raises(BackendRefusedError):
        lake.commit("main")
    lake.put("main", "a", b"2")
    lake.put("main", "a", b"1")
    with pytest.raises(BackendRefusedError):
        lake.commit("main")
    assert lake.head() == head


def test_a_commit_on_a_missing_branch_is_not_found(lake: LakeUnderTest) -> None:
    with pytest.raises(NotFoundError):
        lake.commit("no-such-branch")


def test_a_branch_is_made_from_a_commit_and_only_once(lake: LakeUnderTest) -> None:
    head = lake.put_and_commit("main", "a")
    lake.put_and_commit("main", "b")
    lake.branch("side", head)
    assert lake.head("side") == head
    assert lake.keys("side") == ["a"]
    with pytest.raises(ConflictError):
        lake.branch("side", head)


def test_a_branch_needs_a_source_and_a_valid_name(lake: LakeUnderTest) -> None:
    head = lake.head()
    with pytest.raises(NotFoundError):
        lake.branch("side", MISSING)
    with pytest.raises(NotFoundError):
        lake.head("side")
    for name in ("with.dot", "with/slash", "-dash-first", "ümlaut"):
        with pytest.raises(BackendRefusedError):
            lake.branch(name, head)


def test_deleting_a_branch_twice_is_fine(lake: LakeUnderTest) -> None:
    lake.branch("side", lake.head())
    lake.put("side", "uncommitted")
    lake.lake.delete_branch(lake.staging("side"))
    with pytest.raises(NotFoundError):
        lake.head("side")
    lake.lake.delete_branch(lake.staging("side"))


def test_a_deleted_branch_leaves_its_commits(lake: LakeUnderTest) -> None:
    staged = lake.staged("side", lake.head(), "a", b"1")
    lake.lake.delete_branch(lake.staging("side"))
    assert lake.lake.get_commit(lake.repository, staged.commit).id == staged.commit
    assert lake.read(staged.commit, "a") == b"1"


def test_uncommitted_changes_are_seen_and_rewriting_the_same_is_none(lake: LakeUnderTest) -> None:
    lake.put_and_commit("main", "a", b"1")
    assert not lake.is_dirty()
    lake.put("main", "a", b"1")
    lake.objects.delete(lake.repository, "main", ["never-there"])
    assert not lake.is_dirty()
    lake.objects.delete(lake.repository, "main", ["a"])
    assert lake.is_dirty()
    lake.put("main", "a", b"1")
    assert not lake.is_dirty()
    lake.put("main", "b")
    assert lake.is_dirty()


def test_a_tag_on_the_same_commit_is_fine_and_on_another_a_conflict(lake: LakeUnderTest) -> None:
    one = lake.put_and_commit("main", "a")
    two = lake.put_and_commit("main", "b")
    lake.lake.tag(lake.repository, "perago-replaced-1", one)
    lake.lake.tag(lake.repository, "perago-replaced-1", one)
    with pytest.raises(ConflictError):
        lake.lake.tag(lake.repository, "perago-replaced-1", two)
    assert lake.keys("perago-replaced-1") == ["a"]
    with pytest.raises(NotFoundError):
        lake.lake.tag(lake.repository, "perago-replaced-2", MISSING)
    with pytest.raises(BackendRefusedError):
        lake.lake.tag(lake.repository, "with/slash", one)


def test_a_relocation_moves_the_branch_and_nothing_else(lake: LakeUnderTest) -> None:
    one = lake.put_and_commit("main", "a", b"1")
    lake.put_and_commit("main", "a", b"2")
    other = lake.staged("side", one, "b", b"3")
    lake.relocate("side")
    assert lake.head() == other.commit
    assert lake.keys("main") == ["a", "b"]
    assert lake.read("main", "a") == b"1"
    assert not lake.is_dirty()


def test_a_relocation_leaves_uncommitted_changes_on_the_branch(lake: LakeUnderTest) -> None:
    one = lake.put_and_commit("main", "a")
    lake.put_and_commit("main", "b")
    lake.put("main", "uncommitted")
    lake.branch("side", one)
    lake.relocate("side")
    assert lake.head() == one
    assert lake.is_dirty()
    assert lake.keys("main") == ["a", "uncommitted"]


def test_a_relocation_needs_its_licence_and_its_target(lake: LakeUnderTest) -> None:
    head = lake.put_and_commit("main", "a")
    lake.branch("side", head)
    with pytest.raises(NotFoundError):
        lake.relocate("no-such-branch")
    with pytest.raises(NotFoundError):
        lake.relocate("side", "no-such-branch")
    lake.lake.delete_branch(lake.staging("side"))
    with pytest.raises(NotFoundError):
        lake.relocate("side")
    assert lake.head() == head


def test_a_relocation_takes_what_its_licence_has_committed_and_no_more(lake: LakeUnderTest) -> None:
    staged = lake.staged("side", lake.head(), "a", b"1")
    lake.put("side", "uncommitted")
    lake.relocate("side")
    assert lake.head() == staged.commit
    assert lake.keys("main") == ["a"]


def test_branches_are_listed_by_the_beginning_of_their_names(lake: LakeUnderTest) -> None:
    head = lake.head()
    for name in ("licence-1", "licence-2", "other"):
        lake.branch(name, head)
    staged = lake.put_and_commit("licence-2", "a")
    found = lake.lake.list_branches(lake.repository, "licence-")
    assert [(branch.name, branch.commit) for branch in found] == [
        ("licence-1", head),
        ("licence-2", staged),
    ]
    assert list(lake.lake.list_branches(lake.repository, "nothing-")) == []


def test_a_commit_is_on_a_branch_when_it_is_its_head_or_before_it(lake: LakeUnderTest) -> None:
    root = lake.head()
    one = lake.put_and_commit("main", "a", b"1")
    lake.branch("side", one)
    aside = lake.put_and_commit("side", "b", b"1")
    two = lake.put_and_commit("main", "c", b"1")
    lake.lake.tag(lake.repository, "a-tag", two)

    def is_on(branch: str, commit: str) -> bool:
        return lake.lake.is_on_branch(lake.repository, branch, commit)

    assert [is_on("main", it) for it in (root, one, two, aside)] == [True, True, True, False]
    assert [is_on("side", it) for it in (root, one, two, aside)] == [True, True, False, True]
    for branch, commit in (("main", MISSING), ("no-such-branch", one), ("a-tag", one), (two, one)):
        with pytest.raises(NotFoundError):
            is_on(branch, commit)


def test_two_commits_are_the_same_when_they_hold_the_same_objects(lake: LakeUnderTest) -> None:
    one = lake.put_and_commit("main", "a", b"1")
    two = lake.put_and_commit("main", "a", b"2")
    again = lake.put_and_commit("main", "a", b"1")
    assert lake.lake.is_same(lake.repository, one, again)
    assert not lake.lake.is_same(lake.repository, one, two)
    with pytest.raises(NotFoundError):
        lake.lake.is_same(lake.repository, one, MISSING)


def test_a_commit_says_who_made_it_when_and_with_which_message(lake: LakeUnderTest) -> None:
    lake.put_and_commit("main", "a")
    commit = lake.lake.get_head(lake.repository, "main")
    assert commit.committer
    assert commit.message
    assert commit.created is not None


def test_a_protected_branch_takes_merges_and_nothing_else(lake: LakeUnderTest) -> None:
    root = lake.head()
    lake.branch(PROTECTED, root)
    staged = lake.staged("side", root, "a", b"1")
    merged = lake.merge(staged, PROTECTED)
    with pytest.raises(BackendDeniedError):
        lake.relocate("side", PROTECTED)
    with pytest.raises(BackendDeniedError):
        lake.commit(PROTECTED)
    with pytest.raises(BackendDeniedError):
        lake.put(PROTECTED, "b")
    with pytest.raises(BackendDeniedError):
        lake.put(PROTECTED, "b", metadata={"k": "v"})
    with pytest.raises(BackendDeniedError):
        lake.objects.delete(lake.repository, PROTECTED, ["a"])
    assert lake.head(PROTECTED) == merged
    assert lake.keys(PROTECTED) == ["a"]


def test_a_commit_that_changes_actions_is_told_from_one_that_does_not(lake: LakeUnderTest) -> None:
    def changes_actions(commit_id: str) -> bool:
        commit = lake.lake.get_commit(lake.repository, commit_id)
        return lake.lake.changes_actions(lake.repository, commit)

    assert not changes_actions(lake.head())
    assert not changes_actions(lake.put_and_commit("main", "_lakefs_actions-not/a"))
    assert changes_actions(lake.install_fence())
    assert not changes_actions(lake.put_and_commit("main", "a"))
    lake.objects.delete(lake.repository, "main", [ACTION_PATH])
    assert changes_actions(lake.commit("main").commit)


def test_the_fence_is_looked_for_in_the_tree_of_a_commit(lake: LakeUnderTest) -> None:
    before = lake.put_and_commit("main", "a")
    after = lake.install_fence()
    assert not lake.lake.has_fence(lake.repository, before)
    assert lake.lake.has_fence(lake.repository, after)
    other = lake.put_and_commit("main", ACTION_PATH, b"name: not ours")
    assert not lake.lake.has_fence(lake.repository, other)
    with pytest.raises(NotFoundError):
        lake.lake.has_fence(lake.repository, MISSING)
