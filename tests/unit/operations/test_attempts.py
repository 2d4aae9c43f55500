"""One attempt, from what Conductor and LakeFS tell about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perago.cli.attempt import as_document, lines
from perago.conductor.inspection import LogEntry, TaskView
from perago.errors import NotFoundError, PreGuardrailViolation, PublishFenceError
from perago.operations.attempts import AttemptView, find_traces, read_attempt, read_task_log
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution, LogicalTask
from perago.protocol.outcome import Completed, Failed, Outcome, failure_of
from perago.protocol.ports import Delivery
from perago.protocol.record import Record
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.worker.report import task_log
from support.memory_world import REPOSITORY, InMemoryWorld, raising, writes

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


class TaskAndLog:
    """A Conductor that has one task."""

    def __init__(self, task: TaskView, entries: Sequence[str]) -> None:
        self._task = task
        self._entries = [LogEntry(text, NOW) for text in entries]

    def task(self, task_id: str) -> TaskView:
        if task_id != self._task.task_id:
            raise NotFoundError(f"Conductor has no task {task_id}")
        return self._task

    def log(self, task_id: str) -> Sequence[LogEntry]:
        return self._entries


@pytest.fixture
def world() -> InMemoryWorld:
    return InMemoryWorld()


def view(delivery: Delivery, outcome: Outcome | None) -> TaskView:
    attempt = delivery.claim.attempt
    status, reason = "IN_PROGRESS", None
    if isinstance(outcome, Failed):
        status, reason = outcome.disposition.value, outcome.reason
    elif outcome is not None:
        status = "COMPLETED"
    return TaskView(
        task_id=attempt.task_id,
        task_name="task",
        status=status,
        logical=attempt.logical,
        workflow_name="daily",
        retry_count=attempt.retry_count,
        retried_task_id=attempt.retried_task_id,
        claim=delivery.claim.token,
        reason=reason,
        scheduled=NOW,
        started=NOW,
        ended=NOW if outcome else None,
        input=delivery.payload,
        output=outcome.output if isinstance(outcome, Completed) else {},
    )


def show(
    world: InMemoryWorld, delivery: Delivery, outcome: Outcome, output: str = ""
) -> AttemptView:
    """What is shown of an attempt whose outcome and log the worker has posted."""
    task = view(delivery, outcome)
    conductor = TaskAndLog(task, task_log(world.events, outcome, output))
    found = read_attempt(conductor, task.task_id)
    assert found.workspace is not None
    return replace(found, traces=find_traces(world.lake, task, found.workspace))


def test_a_completed_attempt_is_told_from_its_claim_to_its_commit(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    outcome = world.run(world.job(writes(b=b"2")), delivery)
    found = show(world, delivery, outcome, "hello\nworld")
    assert [phase.name for phase in found.log.phases] == world.phases()
    assert [(fence.fence, fence.passed) for fence in found.fences] == [
        ("attempt", True),
        ("attempt", True),
        ("publish", True),
    ]
    assert found.log.output == "hello\nworld"
    assert found.failure is None
    assert found.traces is not None
    (commit,) = found.traces.commits
    assert (commit.where, commit.commit.id, commit.name) == ("published", world.head.id, "main")
    assert not commit.earlier_claim
    text = "\n".join(lines(found))
    assert f"claimed as {delivery.claim.token}" in text
    assert "the branch was at the input: merged" in text
    assert '{"text": "done"}' in text
    document = as_document(found)
    assert document["lakefs"]["commits"][0]["commit"] == world.head.id
    assert document["phases"][-1]["details"]["how"] == "merged"


def test_a_refused_publication_is_told_with_its_code_and_hint(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    head: list[str] = []

    def body(_: object) -> None:
        head.append(world.commit({"data/x": b"1"}).id)
        head.append(world.commit({"data/y": b"1"}).id)

    outcome = world.run(world.job(body), delivery)
    found = show(world, delivery, outcome)
    assert found.failure is not None
    assert found.failure.code == PublishFenceError.code
    assert found.failure.reason.startswith("PublishFenceError: ")
    assert found.failure.trace is not None
    assert isinstance(outcome, Failed)
    assert found.failure.hint == outcome.hint
    last = found.fences[-1]
    assert (last.fence, last.passed) == ("publish", False)
    text = "\n".join(lines(found))
    assert "REFUSED  publish fence" in text
    assert f"Try: {outcome.hint}" in text
    assert "no commit, no staging branch" in text


def test_a_stale_attempt_is_refused_by_the_attempt_fence(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    workflow = delivery.claim.attempt.workflow_instance_id
    outcome = world.run(world.job(lambda _: world.conductor.terminate(workflow)), delivery)
    (verdict,) = show(world, delivery, outcome).fences
    assert (verdict.fence, verdict.phase, verdict.passed) == ("attempt", "first_fence", False)
    assert verdict.text == "refused: StaleAttemptError"


def test_an_error_of_the_authors_own_has_no_code(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    outcome = world.run(world.job(raising(KeyError("stem"))), delivery)
    failure = show(world, delivery, outcome).failure
    assert failure is not None
    assert (failure.code, failure.hint) == (None, None)


def test_a_lost_hint_is_that_of_the_errors_kind(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    outcome = failure_of(PreGuardrailViolation("missing"))
    found = read_attempt(TaskAndLog(view(delivery, outcome), []), delivery.claim.attempt.task_id)
    assert found.failure is not None
    assert found.failure.hint == PreGuardrailViolation.hint


def test_a_replaced_publication_is_found_by_its_tag(world: InMemoryWorld) -> None:
    first = world.deliver()
    retry = world.publish_and_die(world.job(writes(b=b"2")), first)
    abandoned = world.head.id
    outcome = world.run(world.job(writes(b=b"3")), retry)
    found = show(world, first, outcome)
    assert found.traces is not None
    (commit,) = found.traces.commits
    assert (commit.where, commit.commit.id) == ("replaced", abandoned)
    found = show(world, retry, outcome)
    assert f"the branch was at the abandoned publication {abandoned}" in "\n".join(lines(found))
    assert any("publication_replaced" in warning for warning in found.log.warnings)


def test_a_staged_commit_is_found_on_its_branch_with_its_claim(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    before = replace(delivery.claim, token="before-the-rerun")
    for claim, committed in ((before, True), (delivery.claim, False)):
        execution = Execution(claim, f"e-{claim.token}")
        staging = StagingBranch(REPOSITORY, execution.staging_branch_name)
        world.lake.create_branch(staging, world.ref)
        if committed:
            metadata = Record.of(execution, ref=world.ref, params={}).metadata()
            world.lake.write_and_commit(REPOSITORY, staging.branch, {"data/b": b"1"}, metadata)
    space = WorkspaceInput.model_validate(delivery.payload["workspace"])
    task = view(delivery, None)
    found = find_traces(world.lake, task, space)
    assert set(found.staging_branches) == set(world.staging_branches)
    (commit,) = found.commits
    assert commit.where == "staged"
    assert commit.earlier_claim
    # Another attempt of the same step, and another step, left none of these.
    other = replace(task, task_id="another")
    assert find_traces(world.lake, other, space).staging_branches == ()
    step = replace(task, logical=LogicalTask("w", "another", 0))
    assert find_traces(world.lake, step, space).staging_branches == ()


def test_a_task_without_a_workspace_has_none(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    task = replace(view(delivery, Completed({})), input={"params": {}})
    found = read_attempt(TaskAndLog(task, []), task.task_id)
    assert found.workspace is None
    assert as_document(found)["lakefs"] is None
    assert not any(line.startswith("in LakeFS") for line in lines(found))


def test_a_missing_task_says_what_to_look_for(world: InMemoryWorld) -> None:
    task = view(world.deliver(), None)
    with pytest.raises(NotFoundError) as caught:
        read_attempt(TaskAndLog(task, []), "another")
    assert "perago history REPOSITORY" in caught.value.hint


def test_what_a_task_prints_passes_for_no_other_entry() -> None:
    events = [PhaseEvent("phase_ended", "validate", 0.5)]
    printed = "validate 9.000 s\nreply_lost: x\nTraceback (most recent call last)"
    entries = task_log(events, Completed({}), printed)
    found = read_task_log([LogEntry(text, NOW) for text in entries])
    assert [phase.seconds for phase in found.phases] == [0.5]
    assert found.output == printed
    assert (found.warnings, found.trace) == ((), None)


def test_progress_and_foreign_entries_stay_as_they_are() -> None:
    texts = ["download 0.500 s partition=1; download 0.600 s partition=2", "by an operator"]
    found = read_task_log([LogEntry(text, NOW) for text in texts])
    assert [entry.text for entry in found.others] == texts
    assert found.phases == ()


def test_of_a_task_that_ran_again_the_last_run_is_taken() -> None:
    first = task_log(
        [PhaseEvent("phase_failed", "validate", 0.5, {"error": "InputError"})],
        failure_of(ValueError("first")),
        "first",
    )
    second = task_log([PhaseEvent("phase_ended", "validate", 0.7)], Completed({}))
    found = read_task_log([LogEntry(text, NOW) for text in (*first, *second)])
    assert [phase.seconds for phase in found.phases] == [0.7]
    assert found.output is None
    assert found.trace is None
