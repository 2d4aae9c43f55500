"""What Conductor shows of an attempt that fails by somebody's mistake: the whole reason.

`unit/cli/test_mistakes.py` has what commands say.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from perago.protocol.identity import Execution
from perago.protocol.outcome import Failed, failure_of, told_reason
from perago.protocol.ports import Delivery
from perago.protocol.record import Record
from support.memory_world import Files, InMemoryWorld, completed, raising, writes

CORRECT_INPUT = "[PRG-201] Try: Correct the task's inputParameters in the workflow definition."
WRITES = writes(new=b"new")


@pytest.fixture
def world() -> InMemoryWorld:
    return InMemoryWorld()


def reason(
    world: InMemoryWorld,
    body: Callable[[Files], Any] = WRITES,
    *,
    payload: dict[str, Any] | None = None,
    delivery: Delivery | None = None,
) -> str:
    """What Conductor is told about an attempt: that of a new workflow unless one is given."""
    outcome = world.run(world.job(body), delivery or world.deliver(payload))
    assert isinstance(outcome, Failed)
    return told_reason(outcome)


def test_a_branch_that_does_not_exist(world: InMemoryWorld) -> None:
    assert reason(world, payload=world.payload(branch="nowhere")) == (
        f"InputError: workspace: no branch 'nowhere' in repository 'repo' {CORRECT_INPUT}"
    )


def test_a_ref_that_does_not_exist(world: InMemoryWorld) -> None:
    ref = "f" * 64
    assert reason(world, payload=world.payload(ref=ref)) == (
        f"InputError: workspace: no commit {ref} in repository 'repo' {CORRECT_INPUT}"
    )


def test_a_ref_that_is_the_name_of_a_branch(world: InMemoryWorld) -> None:
    assert reason(world, payload=world.payload(ref="main")) == (
        "InputError: workspace: ref must be a full commit id (64 hex digits), not 'main' "
        f"{CORRECT_INPUT}"
    )


def test_a_ref_that_is_stale_by_one_commit_of_a_person(world: InMemoryWorld) -> None:
    head = world.commit({"data/b": b"2"}).id
    assert reason(world) == (
        f"PublishFenceError: HEAD {head} is a commit by 'admin', 'a commit', made at "
        "2026-01-01T00:00:00+00:00, not by this task: start a new workflow from HEAD [PRG-502] "
        "Try: Start a new workflow from the branch's current HEAD."
    )


def test_a_ref_that_is_stale_by_several_commits(world: InMemoryWorld) -> None:
    world.commit({"data/b": b"2"})
    head = world.commit({"data/b": b"3"}).id
    assert reason(world) == (
        f"PublishFenceError: target branch 'main' is neither at the input {world.ref} nor one "
        f"commit past it: HEAD {head} is a commit by 'admin', 'a commit', made at "
        "2026-01-01T00:00:00+00:00, not by this task: start a new workflow from HEAD [PRG-502] "
        "Try: Start a new workflow from the branch's current HEAD."
    )


def publish(world: InMemoryWorld, delivery: Delivery, step: str) -> str:
    """Another step of the delivery's workflow publishes."""
    attempt = replace(delivery.claim.attempt, reference_name=step, task_id=f"task-of-{step}")
    execution = Execution(replace(delivery.claim, attempt=attempt), f"execution-of-{step}")
    record = Record.of(execution, ref=world.head.id, params={})
    return world.commit({"data/new": step.encode()}, record.metadata()).id


@pytest.mark.parametrize("before", [1, 2], ids=["the second step", "the third step"])
def test_a_step_that_is_mapped_to_the_wrong_workspace(world: InMemoryWorld, before: int) -> None:
    """Also a step further on, whose input is more than one commit behind."""
    delivery = world.deliver(reference_name="report")
    names = ["clean", "total"][:before]
    head = [publish(world, delivery, name) for name in names][-1]
    moved = (
        f"target branch 'main' is neither at the input {world.ref} nor one commit past it: "
        if before > 1
        else ""
    )
    assert reason(world, delivery=delivery) == (
        f"PublishFenceError: {moved}HEAD {head} was published by step {names[-1]!r} of workflow "
        f"{delivery.claim.attempt.workflow_instance_id}, which completed: give this step "
        f"${{{names[-1]}.output.workspace}} [PRG-502] Try: Correct the step's workspace in the "
        "workflow definition, then start a new workflow."
    )


def test_two_workflows_that_write_one_branch(world: InMemoryWorld) -> None:
    other = world.deliver()
    completed(world.run(world.job(WRITES), other))
    assert reason(world) == (
        f"PublishFenceError: HEAD {world.head.id} was published by step 'step' of workflow "
        f"{other.claim.attempt.workflow_instance_id}: two workflows write this branch [PRG-502] "
        "Try: Start a new workflow from the branch's current HEAD."
    )


def test_parallel_writers(world: InMemoryWorld) -> None:
    """Both have begun before one of them publishes."""
    delivery = world.deliver(reference_name="two")

    def body(files: Files) -> None:
        publish(world, delivery, "one")
        files["two"] = b"2"

    assert reason(world, body, delivery=delivery) == (
        f"PublishFenceError: HEAD {world.head.id} was published by step 'one' of workflow "
        f"{delivery.claim.attempt.workflow_instance_id}, which completed: give this step "
        "${one.output.workspace} [PRG-502] Try: Correct the step's workspace in the workflow "
        "definition, then start a new workflow."
    )


def test_params_that_are_misspelt(world: InMemoryWorld) -> None:
    payload = {**world.payload(), "params": {"m": 1}}
    assert reason(world, payload=payload) == (
        f"InputError: params: m: there is no such key; known are n {CORRECT_INPUT}"
    )


def test_a_result_that_does_not_fit(world: InMemoryWorld) -> None:
    assert reason(world, lambda files: {"text": 1}) == (
        "ResultError: the result does not fit Result: text: Input should be a valid string "
        "[PRG-305] Try: Return the declared model; put large data into the workspace, not into the "
        "result."
    )


def test_a_key_error_in_a_body(world: InMemoryWorld) -> None:
    assert reason(world, raising(KeyError("amount"))) == "KeyError: 'amount'"


def test_a_disk_that_is_full(world: InMemoryWorld) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/perago/x")
    assert reason(world, raising(full)) == (
        "MachineError: [Errno 28] No space left on device: '/var/lib/perago/x' [PRG-104] Try: Free "
        "space on that disk; `perago sweep --yes` (PERAGO_WORKSPACE_ROOT) and `perago cache clear` "
        "(PERAGO_OBJECT_CACHE) remove what is no longer needed."
    )


def test_a_machine_that_starts_no_more_threads(world: InMemoryWorld) -> None:
    """So that polling pauses: the next attempt would fare no better."""
    error = RuntimeError("can't start new thread")
    assert reason(world, raising(error)).startswith(
        "MachineError: can't start new thread [PRG-104] Try: Raise the limit of processes"
    )
    assert failure_of(error).is_infrastructure
    # What a body asks for beyond all bounds is its own mistake.
    assert not failure_of(MemoryError()).is_infrastructure
    assert not failure_of(RuntimeError("another")).is_infrastructure
