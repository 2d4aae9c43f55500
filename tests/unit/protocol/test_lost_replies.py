"""Section 8: nothing is repeated blindly; what cannot be known fails with its evidence kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NoReturn

import pytest

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendUnavailableError,
    LostReplyError,
    NotPublishedError,
    PublishFenceError,
    StaleAttemptError,
    UnknownOutcomeError,
)
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.protocol.identity import Execution
from perago.protocol.licences import is_withdrawn_tag_of, withdrawn_tag
from perago.protocol.ports import Delivery
from perago.testing import (
    fails,
    followed_by,
    lands_late,
    lands_late_resolved,
    preceded_by,
    reply_lost,
    request_lost,
)
from perago.testing.faults import Call, Fault
from support.memory_world import (
    REPOSITORY,
    InMemoryWorld,
    assert_untouched,
    completed,
    failed,
    nothing,
    writes,
)

NEW = writes(new=b"new")


class Died(BaseException):
    """The worker is gone with its process."""


def die_at_merge(world: InMemoryWorld, delivery: Delivery, fault: Fault) -> None:
    """An execution dies when its merge was sent: nothing of it reaches a server any more."""
    with ExitStack() as outages:

        def died(do: Call) -> NoReturn:
            with suppress(LostReplyError):
                fault(do)
            outages.enter_context(world.faults.outage("lake"))
            raise Died

        world.faults.inject("lake.merge", died)
        with pytest.raises(Died):
            world.run(world.job(NEW), delivery)
    assert len(world.staging_branches) == 1
    world.clock.advance(60)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)


def assert_asked_once(world: InMemoryWorld, call: str, already: int = 0) -> None:
    assert world.faults.calls.count(call) == already + 1


def test_a_commit_whose_reply_was_lost_is_found_on_the_staging_branch(world: InMemoryWorld) -> None:
    world.faults.inject("lake.commit", reply_lost)
    output = completed(world.run(world.job(NEW)))
    assert output["workspace"]["ref"] == world.head.id
    assert "data/new" in world.contents()
    assert_asked_once(world, "lake.commit")
    assert world.staging_branches == []


def test_a_commit_that_did_not_land_is_unknown_and_kept(world: InMemoryWorld) -> None:
    world.faults.inject("lake.commit", request_lost)
    failed(world.run(world.job(NEW)), UnknownOutcomeError)
    assert world.head.id == world.ref
    assert len(world.staging_branches) == 1
    assert_asked_once(world, "lake.commit")


def test_a_commit_that_nobody_can_look_for_is_unknown_and_kept(world: InMemoryWorld) -> None:
    world.faults.inject("lake.commit", reply_lost)
    world.faults.inject("lake.get_head", fails(BackendUnavailableError("down")), skip=1)
    failed(world.run(world.job(NEW)), UnknownOutcomeError)
    assert len(world.staging_branches) == 1


def test_a_merge_whose_reply_was_lost_is_found_at_head(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", reply_lost)
    output = completed(world.run(world.job(NEW)))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    assert_asked_once(world, "lake.merge")
    assert world.told("resolved_as_landed")


def test_a_merge_that_lands_while_the_state_is_read_is_found(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", lands_late_resolved(world.clock, 3))
    completed(world.run(world.job(NEW)))
    assert_asked_once(world, "lake.merge")
    assert world.staging_branches == []


def test_a_merge_that_lands_while_the_last_reading_is_answered_is_found(
    world: InMemoryWorld,
) -> None:
    """LakeFS reads HEAD before the merge lands, and its answer comes when the time is over."""
    world.faults.inject("lake.merge", lands_late_resolved(world.clock, 4.8))
    slow = followed_by(lambda: world.clock.advance(1.0))
    world.faults.inject("lake.get_head", slow, skip=2 + 9)
    output = completed(world.run(world.job(NEW)))
    assert output["workspace"]["ref"] == world.head.id != world.ref
    assert world.faults.pending == []


def test_a_merge_that_never_landed_is_known_not_to_have(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", request_lost)
    failed(world.run(world.job(NEW)), NotPublishedError)
    assert world.head.id == world.ref
    assert world.staging_branches == []
    assert [tag.startswith("perago-withdrawn-") for tag in world.tags] == [True]
    assert_asked_once(world, "lake.merge")


def test_a_merge_that_arrives_after_its_licence_was_withdrawn_never_lands(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    world.faults.inject("lake.merge", lands_late(world.clock, 30))
    failed(world.run(world.job(NEW), delivery), NotPublishedError)
    world.clock.advance(60)
    assert world.head.id == world.ref
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    completed(world.run(world.job(writes(newer=b"1")), world.claim()))
    assert "data/newer" in world.contents()
    assert "data/new" not in world.contents()


@pytest.mark.parametrize("body", [writes(b=b"2"), nothing], ids=["changed", "unchanged"])
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_a_dead_executions_merge_never_lands_after_its_successor_completed(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None], hard: bool
) -> None:
    """A proxy gave the merge up, the worker died, and the request arrives after the retry."""
    if hard:
        world.ref = world.commit({ACTION_PATH: ACTION_TEXT.encode()}).id
    die_at_merge(world, world.deliver(), lands_late(world.clock, 90))
    output = completed(world.run(world.job(body), world.claim()))
    after = world.contents()
    world.clock.advance(120)
    assert world.contents() == after
    assert output["workspace"]["ref"] == world.head.id
    assert "data/new" not in after
    assert world.staging_branches == []


def test_a_dead_executions_merge_that_is_just_landing_is_waited_for(world: InMemoryWorld) -> None:
    """A no-op that did not wait would complete just before the commit appears."""
    die_at_merge(world, world.deliver(), lands_late_resolved(world.clock, 62))
    output = completed(world.run(world.job(nothing), world.claim()))
    world.clock.advance(120)
    assert output["workspace"]["ref"] == world.head.id == world.ref


def test_a_merge_that_is_landing_is_waited_for_though_its_dead_owner_withdrew_its_licence(
    world: InMemoryWorld,
) -> None:
    """Only the tag of the withdrawal is left to tell of it."""
    delivery = world.deliver()
    world.faults.inject("lake.merge", lands_late_resolved(world.clock, 62))
    with ExitStack() as outages:

        def died(_: Call) -> NoReturn:
            outages.enter_context(world.faults.outage("lake"))
            raise Died

        world.faults.inject("lake.get_head", died, skip=2)
        with pytest.raises(Died):
            world.run(world.job(NEW), delivery)
    assert world.staging_branches == []
    world.clock.advance(60)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    output = completed(world.run(world.job(nothing), world.claim()))
    world.clock.advance(120)
    assert output["workspace"]["ref"] == world.head.id == world.ref


def test_a_licence_that_its_owner_withdraws_meanwhile_is_waited_for_too(
    world: InMemoryWorld,
) -> None:
    """Between the two listings: one before the withdrawal, and one after it."""
    delivery = world.deliver()
    die_at_merge(world, delivery, lands_late_resolved(world.clock, 62))
    repository = world.lake.repository(REPOSITORY)

    def withdraw_own() -> None:
        for name in world.staging_branches:
            commit = repository.branches[name].head
            fingerprint = delivery.claim.attempt.logical.fingerprint
            repository.tags[withdrawn_tag(world.clock.today(), commit, fingerprint)] = commit
            repository.branches.pop(name)

    for listing in ("lake.list_branches", "lake.list_tags"):
        world.faults.inject(listing, followed_by(withdraw_own))
    output = completed(world.run(world.job(nothing), world.claim()))
    world.clock.advance(120)
    assert output["workspace"]["ref"] == world.head.id == world.ref


def test_an_empty_licence_leaves_its_tag_too(world: InMemoryWorld) -> None:
    """The relocation back of a dead no-op may still be landing."""
    delivery = world.deliver()
    dead = Execution(delivery.claim, "dead")
    world.lake.repository(REPOSITORY).create_branch(dead.staging_branch_name, world.ref)
    completed(world.run(world.job(nothing), delivery))
    (tag,) = world.tags
    assert is_withdrawn_tag_of(delivery.claim.attempt.logical, tag)


def test_an_execution_whose_licence_was_withdrawn_is_stale(world: InMemoryWorld) -> None:
    def withdraw() -> None:
        (branch,) = world.staging_branches
        world.lake.repository(REPOSITORY).branches.pop(branch)

    world.faults.inject("lake.merge", preceded_by(withdraw))
    assert "withdrew" in failed(world.run(world.job(NEW)), StaleAttemptError)
    assert_untouched(world)


def test_a_licence_that_cannot_be_withdrawn_leaves_the_outcome_unknown(
    world: InMemoryWorld,
) -> None:
    world.faults.inject("lake.merge", request_lost)
    world.faults.inject("lake.delete_branch", fails(BackendUnavailableError("down")))
    failed(world.run(world.job(NEW)), UnknownOutcomeError)
    assert len(world.staging_branches) == 1


@pytest.mark.parametrize("error", [BackendUnavailableError("down"), BackendDeniedError("no")])
def test_a_lost_merge_during_a_lasting_failure_is_unknown_and_kept(
    world: InMemoryWorld, error: BackendError
) -> None:
    outage = world.faults.outage("lake.get_head", error)

    def lost_for_good(do: Callable[[], object]) -> NoReturn:
        do()
        outage.__enter__()
        raise LostReplyError("the connection broke")

    world.faults.inject("lake.merge", lost_for_good)
    failed(world.run(world.job(NEW)), UnknownOutcomeError)
    assert world.staging_branches == []
    assert [tag.startswith("perago-withdrawn-") for tag in world.tags] == [True]
    assert "data/new" in world.contents()


def test_a_lost_merge_during_a_short_outage_is_found_after_it(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", reply_lost)
    for again in range(3):
        world.faults.inject("lake.get_head", fails(BackendUnavailableError("down")), skip=2 + again)
    completed(world.run(world.job(NEW)))


def test_a_refused_merge_is_certain_and_cleaned_up(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", fails(BackendDeniedError("403")))
    failed(world.run(world.job(NEW)), BackendDeniedError)
    assert world.staging_branches == []


def test_a_relocation_whose_reply_was_lost_is_found_at_head(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    world.faults.inject("lake.relocate", reply_lost)
    output = completed(world.run(world.job(NEW), retry))
    assert output["workspace"]["ref"] == world.head.id
    assert "data/new" in world.contents()
    assert_asked_once(world, "lake.relocate")


def test_a_relocation_back_to_the_input_whose_reply_was_lost_is_found(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    world.faults.inject("lake.relocate", reply_lost)
    completed(world.run(world.job(), retry))
    assert world.head.id == world.ref


def test_a_relocation_that_lands_while_the_state_is_read_is_found(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    world.faults.inject("lake.relocate", lands_late_resolved(world.clock, 3))
    completed(world.run(world.job(NEW), retry))
    assert_asked_once(world, "lake.relocate")


def test_a_relocation_that_never_landed_is_known_not_to_have(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    head = world.head.id
    world.faults.inject("lake.relocate", request_lost)
    failed(world.run(world.job(NEW), retry), NotPublishedError)
    assert world.head.id == head
    assert world.staging_branches == []
    assert_asked_once(world, "lake.relocate")


@pytest.mark.parametrize("body", [NEW, nothing], ids=["replace", "return"])
def test_a_relocation_that_arrives_after_its_licence_was_withdrawn_never_lands(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None]
) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    head = world.head.id
    world.faults.inject("lake.relocate", lands_late(world.clock, 30))
    failed(world.run(world.job(body), retry), NotPublishedError)
    world.clock.advance(60)
    assert world.head.id == head
    world.conductor.decide(retry.claim.attempt.workflow_instance_id)
    completed(world.run(world.job(writes(newer=b"1")), world.claim()))
    assert "data/newer" in world.contents()
    assert "data/new" not in world.contents()


def test_a_target_that_moves_before_its_relocation_is_left_alone(world: InMemoryWorld) -> None:
    """A person commits between the tag and the request: LakeFS would relocate over it."""
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    world.faults.inject("lake.tag", followed_by(lambda: world.commit({"data/theirs": b"1"})))
    failed(world.run(world.job(NEW), retry), PublishFenceError)
    assert "data/theirs" in world.contents()
    assert "lake.relocate" not in world.faults.calls


def test_somebody_elses_commit_at_head_does_not_pass_for_our_merge(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", request_lost)
    world.clock.call_later(2, lambda: world.commit({"data/theirs": b"1"}))
    failed(world.run(world.job(NEW)), UnknownOutcomeError)


def test_another_executions_merge_at_head_does_not_pass_for_ours(world: InMemoryWorld) -> None:
    """The same claim, delivered to two executors."""
    delivery = world.deliver()
    world.faults.inject("lake.merge", request_lost)
    world.clock.call_later(2, lambda: world.run(world.job(writes(theirs=b"1")), delivery))
    failed(world.run(world.job(NEW), delivery), UnknownOutcomeError)
    assert "data/theirs" in world.contents()


def test_a_branch_whose_creation_reply_was_lost_is_deleted(world: InMemoryWorld) -> None:
    world.faults.inject("lake.create_branch", reply_lost)
    failed(world.run(world.job(NEW)), LostReplyError)
    assert world.staging_branches == []


def test_a_cleanup_that_fails_is_logged_and_the_result_stands(world: InMemoryWorld) -> None:
    world.faults.inject("lake.delete_branch", fails(BackendUnavailableError("down")))
    completed(world.run(world.job(NEW)))
    (told,) = world.told("staging_cleanup_failed")
    assert told["message"] == "failed to clean staging workspace"
    assert told["branch"] in world.staging_branches


def test_a_cleanup_that_breaks_in_an_unforeseen_way_changes_no_result_either(
    world: InMemoryWorld,
) -> None:
    world.faults.inject("lake.delete_branch", fails(RuntimeError("a bug")))
    completed(world.run(world.job(NEW)))
    world.ref = world.head.id
    world.faults.inject("lake.delete_branch", fails(RuntimeError("a bug")))
    world.faults.inject("objects.write", preceded_by(lambda: world.commit({"data/x": b"1"})))
    failed(world.run(world.job(writes(more=b"1"))), PublishFenceError)
