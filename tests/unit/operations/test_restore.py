"""Bringing a replaced or withdrawn commit back."""

from __future__ import annotations

import pytest

from perago.cli.restore import as_document, lines
from perago.errors import (
    MixedPublicationError,
    NotFoundError,
    PublishFenceError,
    RestoreError,
    UnknownOutcomeError,
)
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.operations.history import read_history
from perago.operations.restore import Restoration, Restorer
from perago.protocol.identity import Execution
from perago.protocol.job import Policy
from perago.protocol.record import Record, read_record
from perago.protocol.workspace import StagingBranch
from perago.testing import fails, preceded_by, reply_lost, request_lost
from support.memory_world import (
    REPOSITORY,
    InMemoryWorld,
    completed,
    failed,
    nothing,
    writes,
)

# What ``abandoned`` published: of the objects that it and its successor wrote, ``b`` is both's.
FIRST = {"data/a": b"1", "data/b": b"first", "data/c": b"first", "other/x": b"x"}
SECOND = {"data/a": b"1", "data/b": b"second", "data/d": b"second", "other/x": b"x"}


@pytest.fixture
def world() -> InMemoryWorld:
    return InMemoryWorld()


@pytest.fixture
def tag(world: InMemoryWorld) -> str:
    """The tag of an abandoned publication that a retry has replaced."""
    retry = world.publish_and_die(world.job(writes(b=b"first", c=b"first")))
    completed(world.run(world.job(writes(b=b"second", d=b"second")), retry))
    (found,) = (tag for tag in world.tags if tag.startswith("perago-replaced-"))
    return found


def restore(
    world: InMemoryWorld, tag: str, *, really: bool = True, branch: str | None = None
) -> Restoration:
    undeleted: list[str] = []
    restorer = Restorer(world.lake, world.lake.objects, lambda name, _: undeleted.append(name))
    try:
        return restorer.restore(REPOSITORY, tag, branch, really=really)
    finally:
        assert world.staging_branches == undeleted


def test_without_yes_only_what_would_change_is_shown(world: InMemoryWorld, tag: str) -> None:
    head = world.head.id
    found = restore(world, tag, really=False)
    assert world.head.id == head
    assert world.contents() == SECOND
    assert found.commit is None
    assert found.counts == {"added": 1, "changed": 1, "removed": 1}
    assert [(it.kind, it.key) for it in found.changes] == [
        ("changed", "data/b"),
        ("added", "data/c"),
        ("removed", "data/d"),
    ]
    text = "\n".join(lines(found))
    assert "removed  data/d" in text
    assert f"in place of {head}" in text
    assert as_document(found, dry_run=True)["changes_complete"]


def test_a_replaced_commit_comes_back_by_one_commit_in_place_of_its_successor(
    world: InMemoryWorld, tag: str
) -> None:
    head = world.head.id
    found = restore(world, tag)
    assert world.contents() == FIRST
    assert world.head.parents == (head,)
    assert found.commit == world.head.id
    assert "restored by commit" in lines(found)[-1]
    newest = read_history(world.lake, world.lake.objects, REPOSITORY).entries[0]
    assert (newest.kind, newest.tag) == ("restoration", tag)


def test_the_commit_is_a_persons_and_no_attempt_replaces_it(world: InMemoryWorld, tag: str) -> None:
    replacement = world.head.id
    restore(world, tag)
    assert read_record(world.head) is None
    restored = world.head.id
    # An attempt whose input is the commit below finds a person's work one past it.
    payload = world.payload(ref=replacement)
    failed(world.run(world.job(writes(e=b"5")), world.deliver(payload)), PublishFenceError)
    assert world.head.id == restored


def test_what_is_restored_is_not_restored_twice(world: InMemoryWorld, tag: str) -> None:
    first = restore(world, tag)
    second = restore(world, tag)
    assert second.already
    assert second.commit == first.commit == world.head.id
    assert "already" in lines(second)[0]


def test_later_commits_stay(world: InMemoryWorld, tag: str) -> None:
    world.commit({"data/later": b"4"})
    found = restore(world, tag)
    assert found.later == 1
    assert world.contents() == {**FIRST, "data/later": b"4"}


@pytest.mark.parametrize("key", ["data/b", "data/c", "data/d"])
def test_objects_that_later_commits_changed_are_not_overwritten(
    world: InMemoryWorld, tag: str, key: str
) -> None:
    head = world.commit({key: b"later"}).id
    with pytest.raises(RestoreError, match="later commits"):
        restore(world, tag)
    assert world.head.id == head


def test_a_commit_that_was_taken_back_comes_back(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"first", c=b"first")))
    completed(world.run(world.job(nothing), retry))
    (tag,) = (tag for tag in world.tags if tag.startswith("perago-replaced-"))
    found = restore(world, tag)
    assert found.instead is None
    assert world.contents() == FIRST


def test_a_persons_commit_that_head_state_replaced_comes_back() -> None:
    world = InMemoryWorld(policy=Policy(replacement="head-state"))
    world.commit({"data/b": b"first", "data/c": b"first"})
    completed(world.run(world.job(writes(b=b"second"))))
    (tag,) = world.tags
    restore(world, tag)
    assert world.contents() == FIRST


def withdrawn(world: InMemoryWorld, *, committed: bool) -> str:
    """The tag of a dead execution whose licence its retry has withdrawn."""
    delivery = world.deliver()
    execution = Execution(delivery.claim, "dead")
    staging = StagingBranch(REPOSITORY, execution.staging_branch_name)
    world.lake.create_branch(staging, world.ref)
    if committed:
        metadata = Record.of(execution, ref=world.ref, params={}).metadata()
        changes: dict[str, bytes | None] = {"data/b": b"first", "data/c": b"first"}
        world.lake.write_and_commit(REPOSITORY, staging.branch, changes, metadata)
    completed(world.run(world.job(writes(b=b"second", d=b"second")), delivery))
    (tag,) = world.tags
    return tag


def test_what_others_have_brought_back_since_is_there_already(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"first", c=b"first")))
    completed(world.run(world.job(nothing), retry))
    (tag,) = (tag for tag in world.tags if tag.startswith("perago-replaced-"))
    head = world.commit({"data/b": b"first", "data/c": b"first"}).id
    found = restore(world, tag)
    assert found.already
    assert found.commit is None
    assert world.head.id == head
    assert "in other commits" in lines(found)[0]


def test_a_withdrawn_commit_comes_back(world: InMemoryWorld) -> None:
    tag = withdrawn(world, committed=True)
    assert world.contents() == SECOND
    restore(world, tag)
    assert world.contents() == FIRST


def test_of_an_execution_that_committed_nothing_nothing_comes_back(world: InMemoryWorld) -> None:
    tag = withdrawn(world, committed=False)
    with pytest.raises(RestoreError, match="committed nothing"):
        restore(world, tag)


def test_what_was_published_after_all_is_not_restored(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", reply_lost)
    completed(world.run(world.job(writes(b=b"2"))))
    (tag,) = world.tags
    found = restore(world, tag)
    assert found.already
    assert found.commit == world.head.id


@pytest.mark.parametrize("name", ["a-tag", "perago-replaced-20260101-" + "0" * 64])
def test_a_tag_that_is_not_of_perago_is_refused(world: InMemoryWorld, name: str) -> None:
    world.lake.tag(REPOSITORY, name, world.ref)
    with pytest.raises(RestoreError, match="no tag of a replaced or withdrawn commit"):
        restore(world, name)


def test_a_missing_tag_is_not_found(world: InMemoryWorld, tag: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        restore(world, tag[:-1])
    assert f"perago history {REPOSITORY}" in caught.value.hint


def test_a_branch_without_the_commits_input_is_refused(world: InMemoryWorld, tag: str) -> None:
    root = world.lake.log(REPOSITORY, "main", 10)[-1].id
    world.lake.create_branch(StagingBranch(REPOSITORY, "other"), root)
    try:
        with pytest.raises(RestoreError, match="not among the last"):
            Restorer(world.lake, world.lake.objects, lambda *_: None).restore(
                REPOSITORY, tag, "other", really=True
            )
    finally:
        world.lake.delete_branch(StagingBranch(REPOSITORY, "other"))


def test_uncommitted_changes_are_never_in_the_way_of_a_merge(
    world: InMemoryWorld, tag: str
) -> None:
    world.lake.repository(REPOSITORY).branch("main").uncommitted["data/new"] = None
    world.lake.repository(REPOSITORY).branch("main").uncommitted["data/b"] = None
    with pytest.raises(PublishFenceError, match="uncommitted"):
        restore(world, tag)


def test_a_commit_that_changes_actions_is_refused() -> None:
    world = InMemoryWorld()
    lost = world.commit({"_lakefs_actions/x.yaml": b"x"})
    world.lake.repository(REPOSITORY).branch("main").head = world.ref
    name = f"perago-replaced-20260101-{lost.id}"
    world.lake.tag(REPOSITORY, name, lost.id)
    with pytest.raises(RestoreError, match="actions"):
        restore(world, name)


def test_a_branch_that_moves_before_the_merge_is_left_alone(world: InMemoryWorld, tag: str) -> None:
    # The last read before the merge is of the target.
    world.faults.inject("lake.cherry_pick", preceded_by(lambda: world.commit({"data/e": b"5"})))
    with pytest.raises(PublishFenceError, match="moved"):
        restore(world, tag)
    assert world.contents()["data/b"] == b"second"


def test_a_commit_that_slips_in_is_reported(world: InMemoryWorld, tag: str) -> None:
    world.faults.inject("lake.merge", preceded_by(lambda: world.commit({"data/e": b"5"})))
    with pytest.raises(MixedPublicationError, match="on top of"):
        restore(world, tag)


def test_the_hard_fence_refuses_a_commit_that_slips_in() -> None:
    world = InMemoryWorld()
    world.ref = world.commit({ACTION_PATH: ACTION_TEXT.encode()}).id
    retry = world.publish_and_die(world.job(writes(b=b"first")))
    completed(world.run(world.job(writes(b=b"second")), retry))
    (tag,) = world.tags
    slipped: list[str] = []

    def slip_in() -> None:
        slipped.append(world.commit({"data/e": b"5"}).id)

    world.faults.inject("lake.merge", preceded_by(slip_in))
    with pytest.raises(PublishFenceError, match="hook"):
        restore(world, tag)
    assert [world.head.id] == slipped


def test_a_lost_reply_is_resolved_by_reading(world: InMemoryWorld, tag: str) -> None:
    world.faults.inject("lake.merge", reply_lost)
    assert restore(world, tag).commit == world.head.id
    assert world.contents() == FIRST


def test_a_lost_request_is_an_unknown_outcome_and_never_repeated(
    world: InMemoryWorld, tag: str
) -> None:
    world.faults.inject("lake.merge", request_lost)
    before = world.faults.calls.count("lake.merge")
    with pytest.raises(UnknownOutcomeError) as caught:
        restore(world, tag)
    assert world.faults.calls.count("lake.merge") == before + 1
    assert f"perago history {REPOSITORY} main" in caught.value.hint
    assert world.contents() == SECOND


def test_a_short_lived_branch_that_cannot_be_deleted_is_reported(
    world: InMemoryWorld, tag: str
) -> None:
    world.faults.inject("lake.delete_branch", fails(NotFoundError("gone")))
    restore(world, tag)
    assert world.contents() == FIRST
