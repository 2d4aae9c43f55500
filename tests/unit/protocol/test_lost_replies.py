"""Section 8: nothing is repeated blindly; what cannot be known fails with its evidence kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendUnavailableError,
    LostReplyError,
    PublishFenceError,
    UnknownOutcomeError,
)
from perago.testing import fails, lands_late, reply_lost, request_lost
from support.memory_world import InMemoryWorld, completed, failed, writes

NEW = writes(new=b"new")


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
    world.faults.inject("lake.get_head", fails(BackendUnavailableError("down")))
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
    world.faults.inject("lake.merge", lands_late(world.clock, 3))
    completed(world.run(world.job(NEW)))
    assert_asked_once(world, "lake.merge")
    assert world.staging_branches == []


def test_a_merge_that_never_landed_is_unknown_and_kept(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", request_lost)
    failed(world.run(world.job(NEW)), UnknownOutcomeError)
    assert world.head.id == world.ref
    assert len(world.staging_branches) == 1
    assert_asked_once(world, "lake.merge")


def test_a_merge_that_lands_after_the_client_gave_up_is_replaced_by_the_retry(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    world.faults.inject("lake.merge", lands_late(world.clock, 30))
    failed(world.run(world.job(NEW), delivery), UnknownOutcomeError)
    world.clock.advance(60)
    late = world.head
    assert late.first_parent == world.ref
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    completed(world.run(world.job(writes(newer=b"1")), world.claim()))
    assert "data/newer" in world.contents()
    assert "data/new" not in world.contents()
    assert list(world.tags.values()) == [late.id]


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
    assert len(world.staging_branches) == 1
    assert "data/new" in world.contents()


def test_a_lost_merge_during_a_short_outage_is_found_after_it(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", reply_lost)
    for again in range(3):
        world.faults.inject("lake.get_head", fails(BackendUnavailableError("down")), skip=1 + again)
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
    world.faults.inject("lake.relocate", lands_late(world.clock, 3))
    completed(world.run(world.job(NEW), retry))
    assert_asked_once(world, "lake.relocate")


def test_a_relocation_that_never_landed_is_unknown_and_kept(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    head = world.head.id
    world.faults.inject("lake.relocate", request_lost)
    failed(world.run(world.job(NEW), retry), UnknownOutcomeError)
    assert world.head.id == head
    assert len(world.staging_branches) == 1
    assert_asked_once(world, "lake.relocate")


def test_a_relocation_that_lands_after_the_client_gave_up_is_replaced_by_the_retry(
    world: InMemoryWorld,
) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    world.faults.inject("lake.relocate", lands_late(world.clock, 30))
    failed(world.run(world.job(NEW), retry), UnknownOutcomeError)
    world.clock.advance(60)
    assert "data/new" in world.contents()
    world.conductor.decide(retry.claim.attempt.workflow_instance_id)
    completed(world.run(world.job(writes(newer=b"1")), world.claim()))
    assert "data/newer" in world.contents()
    assert "data/new" not in world.contents()


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
    world.commit({"data/x": b"1"})
    world.faults.inject("lake.delete_branch", fails(RuntimeError("a bug")))
    failed(world.run(world.job(NEW)), PublishFenceError)
