"""Section 9 meets sections 7 and 8: the publish table, the fences and recovery of Spark tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from perago.errors import (
    MixedPublicationError,
    NotPublishedError,
    PublishFenceError,
    StaleAttemptError,
    UnknownOutcomeError,
)
from perago.protocol.identity import Execution
from perago.protocol.ports import Delivery
from perago.protocol.record import EXPECTED_HEAD, read_record
from perago.protocol.run import run_attempt
from perago.testing import Faults, followed_by, preceded_by, reply_lost, request_lost
from perago.testing.faults import Call
from perago.testing.spark import InMemorySparkWorkspace
from support.memory_world import (
    REPOSITORY,
    Files,
    InMemoryWorld,
    Result,
    assert_untouched,
    completed,
    failed,
    nothing,
    raising,
)

Body = Callable[[InMemorySparkWorkspace], Any]


def write_b(workspace: InMemorySparkWorkspace) -> None:
    workspace.write("b", b"2")


BODIES = pytest.mark.parametrize("body", [nothing, write_b], ids=["unchanged", "changed"])
PUBLISHED = {"data/a": b"1", "data/b": b"2", "other/x": b"x"}


def test_at_the_input_a_change_is_merged_as_one_commit(world: InMemoryWorld) -> None:
    output = completed(world.run(world.spark_job(write_b)))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    assert world.head.metadata[EXPECTED_HEAD] == world.ref
    assert read_record(world.head) is not None


def test_at_the_input_no_change_completes_without_a_commit(world: InMemoryWorld) -> None:
    output = completed(world.run(world.spark_job(nothing)))
    assert output["workspace"]["ref"] == world.ref
    assert not {"lake.commit", "lake.merge", "lake.relocate"} & set(world.faults.calls)
    assert_untouched(world)


def test_an_abandoned_publication_is_replaced(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    abandoned = world.abandon({"data/a": b"abandoned", "data/left": b"over"}, delivery).id
    output = completed(world.run(world.spark_job(write_b), delivery))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    assert world.contents() == PUBLISHED
    assert list(world.tags.values()) == [abandoned]


def test_over_an_abandoned_publication_no_change_returns_to_the_input(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    abandoned = world.abandon({"data/a": b"abandoned"}, delivery).id
    output = completed(world.run(world.spark_job(nothing), delivery))
    assert output["workspace"]["ref"] == world.head.id == world.ref
    assert list(world.tags.values()) == [abandoned]


@BODIES
def test_any_other_head_fails_and_is_not_moved(world: InMemoryWorld, body: Body) -> None:
    world.commit({"data/a": b"2"})
    head = world.commit({"data/a": b"3"}).id
    failed(world.run(world.spark_job(body)), PublishFenceError)
    assert world.head.id == head
    assert (world.tags, world.staging_branches) == ({}, [])


def end_workflow(world: InMemoryWorld, delivery: Delivery) -> Callable[[], None]:
    return lambda: world.conductor.terminate(delivery.claim.attempt.workflow_instance_id)


def test_an_attempt_that_is_stale_before_the_body_makes_no_branch(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    world.faults.inject("spark.open", followed_by(end_workflow(world, delivery)))
    ran: list[object] = []
    failed(world.run(world.spark_job(ran.append), delivery), StaleAttemptError)
    assert ran == []
    assert "lake.create_branch" not in world.faults.calls


@BODIES
def test_an_attempt_that_became_stale_in_the_body_publishes_nothing(
    world: InMemoryWorld, body: Body
) -> None:
    delivery = world.deliver()
    world.faults.inject("spark.end_operations", followed_by(end_workflow(world, delivery)))
    failed(world.run(world.spark_job(body), delivery), StaleAttemptError)
    assert not {"lake.merge", "lake.relocate"} & set(world.faults.calls)
    assert_untouched(world)


def test_the_lease_is_renewed_before_the_body_and_before_publishing(world: InMemoryWorld) -> None:
    completed(world.run(world.spark_job(write_b)))
    assert world.faults.calls.count("attempts.renew") == 2


def test_a_commit_whose_reply_was_lost_is_found_and_checked(world: InMemoryWorld) -> None:
    world.faults.inject("lake.commit", reply_lost)
    completed(world.run(world.spark_job(write_b)))
    assert world.contents() == PUBLISHED
    assert world.staging_branches == []


def test_a_commit_that_did_not_land_is_unknown_and_kept(world: InMemoryWorld) -> None:
    world.faults.inject("lake.commit", request_lost)
    failed(world.run(world.spark_job(write_b)), UnknownOutcomeError)
    assert world.head.id == world.ref
    assert len(world.staging_branches) == 1
    assert world.told("staging_branch_kept")


def test_a_merge_that_never_landed_is_known_not_to_have(world: InMemoryWorld) -> None:
    world.faults.inject("lake.merge", request_lost)
    failed(world.run(world.spark_job(write_b)), NotPublishedError)
    assert world.head.id == world.ref
    assert world.staging_branches == []


def test_a_retry_withdraws_a_dead_predecessors_licence_and_ends_its_session_first(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    dead = Execution(delivery.claim, "dead")
    world.lake.repository(REPOSITORY).create_branch(dead.staging_branch_name, world.ref)
    seen: list[list[str]] = []

    def body(workspace: InMemorySparkWorkspace) -> None:
        seen.append(list(world.spark.ended))
        write_b(workspace)

    completed(world.run(world.spark_job(body), delivery))
    assert seen == [["dead"]]
    assert world.staging_branches == []


@pytest.mark.parametrize("outlives", [True, False])
def test_a_retry_of_a_file_task_ends_a_dead_predecessors_transfer_first(
    world: InMemoryWorld, outlives: bool
) -> None:
    """Its Spark is another server's job, which ends with no worker."""
    delivery = world.deliver()
    dead = Execution(delivery.claim, "dead")
    world.lake.repository(REPOSITORY).create_branch(dead.staging_branch_name, world.ref)
    ports = world.ports()
    assert ports.storage is not None
    storage = replace(ports.storage, transfers_outlive_worker=outlives)
    seen: list[list[str]] = []

    def body(files: Files) -> None:
        seen.append(list(world.spark.ended))
        files["b"] = b"2"

    execution = Execution(delivery.claim, "alive")
    outcome = run_attempt(
        world.job(body), execution, delivery.payload, replace(ports, storage=storage)
    )
    completed(outcome)
    assert seen == [["dead"] if outlives else []]
    assert world.staging_branches == []


def test_a_stale_execution_ends_no_other_ones_transfer(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    live = Execution(delivery.claim, "live")
    world.lake.repository(REPOSITORY).create_branch(live.staging_branch_name, world.ref)
    ports = world.ports()
    assert ports.storage is not None
    stale = Execution(replace(delivery.claim, token="older"), "stale")
    storage = replace(ports.storage, transfers_outlive_worker=True)
    run = run_attempt(world.job(), stale, delivery.payload, replace(ports, storage=storage))
    failed(run, StaleAttemptError)
    assert world.spark.ended == []
    assert world.staging_branches == [live.staging_branch_name]


def test_a_merge_that_raced_another_one_is_detected_and_kept_as_evidence(
    world: InMemoryWorld,
) -> None:
    world.faults.inject("lake.merge", preceded_by(lambda: world.commit({"data/o": b"theirs"})))
    failed(world.run(world.spark_job(write_b)), MixedPublicationError)
    assert len(world.staging_branches) == 1


def test_what_is_written_after_the_commit_is_never_published(world: InMemoryWorld) -> None:
    """Merged is the commit that was checked, not what the branch holds by then."""

    def body(space: InMemorySparkWorkspace) -> None:
        space.write("b", b"2")
        world.faults.inject("lake.commit", followed_by(lambda: space.write("late", b"3")))

    completed(world.run(world.spark_job(body)))
    assert world.contents() == PUBLISHED


def test_a_retry_adopts_what_its_dead_predecessor_published(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> Result:
        space.write("b", b"2")
        return Result(text="the first")

    retry = world.publish_and_die(world.spark_job(body, recovery="adopt"))
    again = world.spark_job(raising(AssertionError("ran")), recovery="adopt")
    output = completed(world.run(again, retry))
    assert output == {
        "workspace": {**world.payload()["workspace"], "ref": world.head.id},
        "result": {"text": "the first"},
    }
    assert len(world.spark.opened) == 1


class Crash(BaseException):
    """The worker is gone: nothing after this reaches any server."""


def crash(outages: ExitStack, faults: Faults, *, after_the_call: bool) -> Callable[[Call], Any]:
    def fault(do: Call) -> Any:
        if after_the_call:
            do()
        for port in ("lake", "objects", "spark", "attempts"):
            outages.enter_context(faults.outage(port))
        raise Crash

    return fault


def calls_of(body: Body, *, abandoned: bool) -> list[tuple[str, int]]:
    """Every call of an attempt that goes well, with its number among those of its name."""
    world = InMemoryWorld()
    delivery = world.deliver()
    if abandoned:
        world.abandon({"data/a": b"abandoned"}, delivery)
    begin = len(world.faults.calls)
    completed(world.run(world.spark_job(body), delivery))
    calls = world.faults.calls[begin:]
    return [(call, calls[:index].count(call)) for index, call in enumerate(calls)]


POINTS = [
    pytest.param(body, abandoned, call, turn, after, id=f"{name}-{call}-{turn}-{when}")
    for name, body, abandoned in [
        ("merge", write_b, False),
        ("replace", write_b, True),
        ("return", nothing, True),
    ]
    for call, turn in calls_of(body, abandoned=abandoned)
    for after, when in [(False, "before"), (True, "after")]
]


@pytest.mark.parametrize(("body", "abandoned", "call", "turn", "after"), POINTS)
def test_after_a_crash_at_any_call_the_retry_publishes_its_own_result_alone(
    world: InMemoryWorld, body: Body, abandoned: bool, call: str, turn: int, after: bool
) -> None:
    delivery = world.deliver()
    if abandoned:
        world.abandon({"data/a": b"abandoned"}, delivery)
    with suppress(Crash), ExitStack() as outages:
        fault = crash(outages, world.faults, after_the_call=after)
        world.faults.inject(call, fault, skip=turn)
        world.run(world.spark_job(body), delivery)
    world.clock.advance(world.settings.response_timeout_seconds)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    retry = world.claim()
    output = completed(world.run(world.spark_job(lambda space: space.write("c", b"3")), retry))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    assert world.contents() == {"data/a": b"1", "data/c": b"3", "other/x": b"x"}
    assert world.staging_branches == []
