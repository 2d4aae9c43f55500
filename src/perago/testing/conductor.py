"""Conductor in memory, as workers use it: queue, claims, leases, retries, operators' actions.

Workflows have one task. It behaves as Conductor 3.32 does, which checks no claim on an update;
``tests/contract`` runs the same cases against both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perago.errors import ConflictError, NotFoundError
from perago.names import OPEN_STATUSES
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, Outcome, told_reason
from perago.protocol.ports import AttemptSnapshot, Delivery
from perago.testing.clock import ManualClock
from perago.testing.faults import Faults

_RETRIED = frozenset({"FAILED", "TIMED_OUT"})


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The retries and leases of a TaskDef."""

    task_type: str
    retry_count: int = 3
    retry_delay_seconds: float = 0.0
    response_timeout_seconds: float = 60.0


@dataclass(slots=True)
class StoredTask:
    """One attempt, as Conductor stores it."""

    attempt: Attempt
    status: str = "SCHEDULED"
    worker_id: str | None = None
    updated_at: float = 0.0
    available_at: float = 0.0
    queued: bool = True
    output: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    logs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Workflow:
    """A workflow instance of one task: its attempts, oldest first."""

    id: str
    settings: TaskSettings
    payload: dict[str, Any]
    reference_name: str
    iteration: int
    # Only polls of this domain get its tasks.
    domain: str | None = None
    status: str = "RUNNING"
    ended_before: bool = False
    tasks: list[StoredTask] = field(default_factory=list)


class InMemoryConductor:
    """Implements ``Attempts``, and the other calls of workers and operators."""

    def __init__(self, clock: ManualClock, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._clock = clock
        self._workflows: dict[str, Workflow] = {}
        self._numbers = itertools.count(1)
        self._last_ms = 0

    # The worker's side: port calls.

    def poll(
        self, task_type: str, token: str, *, domain: str | None = None, wait_ms: int = 0
    ) -> Delivery | None:
        """Deliver the longest waiting task of a type, or None; the token becomes its claim."""
        return self.faults.run("attempts.poll", lambda: self._poll(task_type, token, domain))

    def poll_batch(
        self, task_type: str, token: str, count: int, *, domain: str | None = None, wait_ms: int = 0
    ) -> list[Delivery]:
        """Deliver up to ``count`` tasks of a type, the longest waiting first, under one token."""

        def do() -> list[Delivery]:
            polls = (self._poll(task_type, token, domain) for _ in range(count))
            return [delivery for delivery in polls if delivery is not None]

        return self.faults.run("attempts.poll", do)

    def find_waiting(self, task_types: Sequence[str], *, domain: str | None = None) -> list[str]:
        """Say which queues hold anything; a task in one may not be due yet."""

        def do() -> list[str]:
            waiting = {
                workflow.settings.task_type
                for workflow in self._workflows.values()
                if workflow.domain == domain and any(task.queued for task in workflow.tasks)
            }
            return [name for name in task_types if name in waiting]

        return self.faults.run("attempts.find_waiting", do)

    def read(self, task_id: str) -> AttemptSnapshot:
        return self.faults.run("attempts.read", lambda: self._snapshot(task_id))

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        def do() -> bool:
            if workflow_instance_id not in self._workflows:
                raise NotFoundError(f"No such workflow found by id: {workflow_instance_id}")
            return self._workflows[workflow_instance_id].ended_before

        return self.faults.run("attempts.has_ended_before", do)

    def renew(self, claim: Claim) -> None:
        """Extend a lease. The claim is not checked, and a finished task is no error."""

        def do() -> None:
            _, task = self._find(claim.attempt.task_id)
            if task.status == "IN_PROGRESS":
                task.updated_at = self._clock.monotonic()

        self.faults.run("attempts.renew", do)

    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None:
        """Post an outcome. The claim is not checked, and a finished task ignores it."""

        def do() -> None:
            workflow, task = self._find(claim.attempt.task_id)
            if task.status not in OPEN_STATUSES:
                return
            task.worker_id, task.queued, task.logs = claim.token, False, list(logs)
            if isinstance(outcome, Completed):
                task.output = outcome.output
                self._end(workflow, task, "COMPLETED")
            else:
                task.reason = told_reason(outcome)
                self._end(workflow, task, outcome.disposition.value)

        self.faults.run("attempts.complete", do)

    def hand_back(self, claim: Claim) -> None:
        """Put the task back into the queue, as an IN_PROGRESS update does; it uses up no retry."""

        def do() -> None:
            _, task = self._find(claim.attempt.task_id)
            if task.status == "IN_PROGRESS":
                task.status, task.queued, task.worker_id = "SCHEDULED", True, claim.token

        self.faults.run("attempts.hand_back", do)

    # The operator's side: no port call, so no fault.

    def start(
        self,
        settings: TaskSettings,
        payload: dict[str, Any],
        *,
        reference_name: str = "step",
        iteration: int = 0,
        domain: str | None = None,
    ) -> str:
        """Start a workflow, in ``domain`` for the workers of that domain only; return its id."""
        workflow_id = f"workflow-{next(self._numbers)}"
        workflow = Workflow(workflow_id, settings, payload, reference_name, iteration, domain)
        self._workflows[workflow_id] = workflow
        self._schedule(workflow, retry_count=0, retried=None)
        return workflow_id

    def workflow(self, workflow_id: str) -> Workflow:
        """Return a workflow with all its attempts, to inspect."""
        return self._workflows[workflow_id]

    def retry(self, workflow_id: str) -> None:
        """Retry the last task of a workflow that failed."""
        workflow = self._resume(workflow_id, "retry")
        last = workflow.tasks[-1]
        self._schedule(workflow, last.attempt.retry_count + 1, retried=last.attempt.task_id)

    def rerun(self, workflow_id: str, task_id: str) -> None:
        """Start again from a task: it keeps its id, and later tasks are removed.

        The task keeps the worker id of its last claim until the next poll.
        """
        workflow = self._resume(workflow_id, "rerun")
        _, task = self._find(task_id)
        del workflow.tasks[workflow.tasks.index(task) + 1 :]
        task.attempt = replace(task.attempt, scheduled_ms=self._next_ms())
        task.status, task.queued, task.output, task.reason = "SCHEDULED", True, {}, None
        task.available_at = self._clock.monotonic()

    def restart(self, workflow_id: str) -> None:
        """Start again from the beginning, with new tasks."""
        workflow = self._resume(workflow_id, "restart")
        workflow.tasks.clear()
        workflow.ended_before = False
        self._schedule(workflow, retry_count=0, retried=None)

    def requeue(self, task_type: str) -> None:
        """Put every task in progress into the queue again, unchanged."""
        for workflow in self._workflows.values():
            for task in workflow.tasks:
                if workflow.settings.task_type == task_type and task.status == "IN_PROGRESS":
                    task.queued = True

    def terminate(self, workflow_id: str) -> None:
        """Terminate a workflow and cancel its open tasks."""
        workflow = self._workflows[workflow_id]
        workflow.status = "TERMINATED"
        for task in workflow.tasks:
            if task.status in OPEN_STATUSES:
                task.status, task.queued = "CANCELED", False

    def decide(self, workflow_id: str) -> None:
        """Time out an expired lease. Conductor does this periodically, not at once."""
        workflow = self._workflows[workflow_id]
        task = workflow.tasks[-1]
        expires = task.updated_at + workflow.settings.response_timeout_seconds
        if task.status == "IN_PROGRESS" and self._clock.monotonic() >= expires:
            task.queued = False
            self._end(workflow, task, "TIMED_OUT")

    def _poll(self, task_type: str, token: str, domain: str | None) -> Delivery | None:
        now = self._clock.monotonic()
        for workflow in self._workflows.values():
            settings = workflow.settings
            if workflow.domain != domain:
                continue
            for task in workflow.tasks:
                waiting = task.queued and task.available_at <= now
                if settings.task_type == task_type and waiting:
                    task.queued, task.status = False, "IN_PROGRESS"
                    task.worker_id, task.updated_at = token, now
                    return Delivery(
                        Claim(task.attempt, token),
                        task_type,
                        dict(workflow.payload),
                        settings.response_timeout_seconds,
                    )
        return None

    def _snapshot(self, task_id: str) -> AttemptSnapshot:
        workflow, task = self._find(task_id)
        return AttemptSnapshot(
            status=task.status,
            workflow_instance_id=workflow.id,
            task_id=task_id,
            retry_count=task.attempt.retry_count,
            worker_id=task.worker_id,
            response_timeout_seconds=workflow.settings.response_timeout_seconds,
            retried_task_id=task.attempt.retried_task_id,
        )

    def _end(self, workflow: Workflow, task: StoredTask, status: str) -> None:
        task.status = status
        attempt = task.attempt
        if status in _RETRIED and attempt.retry_count < workflow.settings.retry_count:
            self._schedule(workflow, attempt.retry_count + 1, retried=attempt.task_id)
        else:
            terminal = status == "FAILED_WITH_TERMINAL_ERROR"
            workflow.status = "FAILED" if terminal else status

    def _schedule(self, workflow: Workflow, retry_count: int, *, retried: str | None) -> None:
        attempt = Attempt(
            workflow_instance_id=workflow.id,
            task_id=f"task-{next(self._numbers)}",
            retry_count=retry_count,
            reference_name=workflow.reference_name,
            seq=len(workflow.tasks) + 1,
            iteration=workflow.iteration,
            retried_task_id=retried,
            scheduled_ms=self._next_ms(),
        )
        delay = workflow.settings.retry_delay_seconds if retried else 0.0
        task = StoredTask(attempt, available_at=self._clock.monotonic() + delay)
        workflow.tasks.append(task)

    def _next_ms(self) -> int:
        """Return the time of a scheduling, always later than the one before."""
        self._last_ms = max(self._clock.milliseconds, self._last_ms + 1)
        return self._last_ms

    def _find(self, task_id: str) -> tuple[Workflow, StoredTask]:
        for workflow in self._workflows.values():
            for task in workflow.tasks:
                if task.attempt.task_id == task_id:
                    return workflow, task
        raise NotFoundError(f"Task not found for taskId: {task_id}")

    def _resume(self, workflow_id: str, what: str) -> Workflow:
        workflow = self._workflows[workflow_id]
        if workflow.status == "RUNNING":
            raise ConflictError(f"{workflow_id} is not in terminal state, unable to {what}")
        workflow.status, workflow.ended_before = "RUNNING", True
        return workflow
