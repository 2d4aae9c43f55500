"""Section 4: what the failure of each step gives, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from perago.errors import (
    BackendRefusedError,
    BackendUnavailableError,
    BodyError,
    ConflictError,
    GuardrailViolation,
    LostReplyError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    ResultError,
    StaleAttemptError,
    TaskFailed,
    TaskTerminalError,
)
from perago.protocol.job import Policy
from perago.testing import fails, preceded_by
from support.memory_world import (
    Files,
    InMemoryWorld,
    Result,
    assert_untouched,
    failed,
    raising,
    writes,
)

TERMINAL = "FAILED_WITH_TERMINAL_ERROR"
BROKEN: Any = b"\xff"


def test_a_failing_download_fails_the_attempt(world: InMemoryWorld) -> None:
    world.faults.inject("objects.read", fails(BackendUnavailableError("down")))
    failed(world.run(world.job(writes(b=b"2"))), BackendUnavailableError)
    assert_untouched(world)


def test_a_broken_pre_guardrail_is_terminal_and_the_body_does_not_run(world: InMemoryWorld) -> None:
    ran: list[Files] = []
    job = world.job(ran.append, pre=raising(GuardrailViolation("raw/ is empty")))
    assert failed(world.run(job), PreGuardrailViolation, TERMINAL).endswith("raw/ is empty")
    assert ran == []
    assert_untouched(world)


def test_a_broken_post_guardrail_is_a_plain_failure(world: InMemoryWorld) -> None:
    job = world.job(writes(b=b"2"), post=raising(GuardrailViolation("clean/ is empty")))
    failed(world.run(job), PostGuardrailViolation)
    assert_untouched(world)


@pytest.mark.parametrize("side", ["pre", "post"])
def test_anything_else_a_guardrail_raises_is_a_plain_failure(
    world: InMemoryWorld, side: str
) -> None:
    broken: dict[str, Any] = {side: raising(OSError("disk"))}
    failed(world.run(world.job(writes(b=b"2"), **broken)), OSError)
    leaving: dict[str, Any] = {side: raising(SystemExit(1))}
    failed(world.run(world.job(writes(b=b"2"), **leaving)), BodyError)
    assert_untouched(world)


@pytest.mark.parametrize(
    ("raised", "reported", "status"),
    [
        (TaskFailed("try again"), TaskFailed, "FAILED"),
        (TaskTerminalError("never"), TaskTerminalError, TERMINAL),
        (KeyError("missing"), KeyError, "FAILED"),
        (GuardrailViolation("the body's own"), GuardrailViolation, "FAILED"),
        (SystemExit(3), BodyError, "FAILED"),
        (asyncio.CancelledError(), BodyError, "FAILED"),
    ],
)
def test_what_a_body_raises_becomes_its_status(
    world: InMemoryWorld, raised: BaseException, reported: type[BaseException], status: str
) -> None:
    failed(world.run(world.job(raising(raised))), reported, status)
    assert_untouched(world)


def test_an_interrupted_process_is_no_outcome(world: InMemoryWorld) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.run(world.job(raising(KeyboardInterrupt())))


def test_a_failure_tells_type_message_hint_and_trace(world: InMemoryWorld) -> None:
    outcome = world.run(world.job(raising(KeyError("missing"))))
    reason = failed(outcome, KeyError)
    assert reason == "KeyError: 'missing'"
    assert "raise error" in getattr(outcome, "trace", "")
    long = failed(world.run(world.job(raising(ValueError("x" * 5000)))), ValueError)
    assert len(long) <= 500


@pytest.mark.parametrize(
    "value",
    [{"text": 5}, 7, [], Result.model_construct(text=BROKEN)],
    ids=repr,
)
def test_a_result_that_does_not_fit_its_model_fails_before_publishing(
    world: InMemoryWorld, value: object
) -> None:
    def body(files: Files) -> object:
        files["b"] = b"2"
        return value

    failed(world.run(world.job(body)), ResultError)
    assert_untouched(world)


def test_a_result_that_is_no_json_fails_before_publishing(world: InMemoryWorld) -> None:
    class Numbers(BaseModel):
        n: float

    def body(files: Files) -> object:
        files["b"] = b"2"
        return Numbers(n=float("nan"))

    failed(world.run(world.job(body, result_model=Numbers)), ResultError)
    assert_untouched(world)


def test_an_output_that_is_too_large_fails_before_publishing(world: InMemoryWorld) -> None:
    world.policy = Policy(max_output_bytes=1000)

    def body(files: Files) -> Result:
        files["b"] = b"2"
        return Result(text="x" * 1000)

    assert "1000 allowed" in failed(world.run(world.job(body)), ResultError)
    assert_untouched(world)


def test_a_stale_attempt_fails_at_the_first_fence_with_nothing_staged(world: InMemoryWorld) -> None:
    delivery = world.deliver()

    def body(files: Files) -> None:
        files["b"] = b"2"
        world.conductor.requeue("task")
        world.claim()

    failed(world.run(world.job(body), delivery), StaleAttemptError)
    assert "lake.create_branch" not in world.faults.calls
    assert_untouched(world)


def test_a_stale_attempt_fails_at_the_second_fence_with_nothing_published(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    workflow_id = delivery.claim.attempt.workflow_instance_id
    terminate = preceded_by(lambda: world.conductor.terminate(workflow_id))
    world.faults.inject("lake.commit", terminate)
    failed(world.run(world.job(writes(b=b"2")), delivery), StaleAttemptError)
    assert "lake.merge" not in world.faults.calls
    assert_untouched(world)


def test_a_stale_attempt_does_not_complete_a_no_op(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    workflow_id = delivery.claim.attempt.workflow_instance_id
    job = world.job(lambda _: world.conductor.terminate(workflow_id))
    failed(world.run(job, delivery), StaleAttemptError)


def test_conductor_away_at_a_fence_fails_the_attempt(world: InMemoryWorld) -> None:
    world.faults.inject("attempts.read", fails(BackendUnavailableError("down")))
    failed(world.run(world.job(writes(b=b"2"))), BackendUnavailableError)
    assert_untouched(world)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("lake.create_branch", ConflictError("exists")),
        ("lake.create_branch", LostReplyError("lost")),
        ("objects.write", BackendUnavailableError("down")),
        ("objects.delete", BackendRefusedError("no")),
        ("lake.commit", BackendRefusedError("no")),
        ("lake.get_head", BackendUnavailableError("down")),
        ("lake.has_uncommitted_changes", BackendUnavailableError("down")),
        ("lake.merge", BackendUnavailableError("429: retries used up")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_failure_on_the_way_to_the_target_leaves_no_branch(
    world: InMemoryWorld, call: str, error: BackendUnavailableError
) -> None:
    def body(files: Files) -> None:
        files["b"] = b"2"
        del files["a"]

    world.faults.inject(call, fails(error))
    failed(world.run(world.job(body)), type(error))
    assert_untouched(world)
