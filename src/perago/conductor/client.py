"""Attempts as Conductor knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perago.conductor.api import (
    CONFIG,
    SIZES,
    TASK,
    TASKS,
    WORKFLOW,
    ConductorApi,
    exactly,
    parsed,
    read_task,
    read_workflow,
    segment,
)
from perago.connections import ConductorConnection
from perago.errors import BackendUnavailableError
from perago.http_errors import MAX_TEXT, nothing, reason_of
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, Outcome, told_reason
from perago.protocol.ports import AttemptSnapshot, Delivery
from perago.retry import TRIES, UNSENT_SECONDS, retry_change, retrying_times
from perago.text import shorten_line

_LONGEST_POLL_MS = 5000
# Conductor keeps the first ten log entries of an update and drops the rest.
_MAX_LOG_ENTRIES = 10
# Hears of a task in the answer to a poll that cannot be read: its type, and why.
OnUnreadable = Callable[[str, str], None]


class ConductorAttempts:
    """Poll, lease and completion; implements the protocol's ``Attempts`` port."""

    def __init__(
        self,
        connection: ConductorConnection,
        *,
        tries: int = TRIES,
        on_unreadable: OnUnreadable = lambda task_type, reason: None,
    ) -> None:
        """``tries`` is for reads and lease renewals; polls and posts are one request each."""
        self._api = ConductorApi(connection)
        self._tries = tries
        self._on_unreadable = on_unreadable

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._api.close()

    def poll(
        self, task_type: str, token: str, *, domain: str | None = None, wait_ms: int = 0
    ) -> Delivery | None:
        """Ask for one task, as ``poll_batch`` does."""
        found = self.poll_batch(task_type, token, 1, domain=domain, wait_ms=wait_ms)
        return found[0] if found else None

    def poll_batch(
        self, task_type: str, token: str, count: int, *, domain: str | None = None, wait_ms: int = 0
    ) -> list[Delivery]:
        """Ask for up to ``count`` tasks under a worker id that is used for this poll only.

        A poll is a change: a task whose delivery is lost stays claimed. So a task that cannot be
        read takes no other with it. Conductor waits until it has as many as were asked for, so a
        poll that waits should ask for one.
        """
        wait_ms = min(wait_ms, _LONGEST_POLL_MS)
        query: dict[str, Any] = {"workerid": token, "count": count, "timeout": wait_ms}
        if domain:
            query["domain"] = domain

        def read(body: bytes) -> list[Delivery]:
            tasks = parsed(TASKS)(body)
            if len(tasks) > count:
                # The others would be claimed and never run.
                raise ValueError("the answer has more tasks than were asked for")
            return self._readable(task_type, tasks, token)

        found = self._api.get(
            f"poll for {task_type!r}",
            f"/tasks/poll/batch/{segment(task_type)}",
            read,
            query,
            changes=True,
            extra_seconds=wait_ms / 1000,
        )
        return found or []

    def _readable(self, task_type: str, tasks: Sequence[Any], token: str) -> list[Delivery]:
        """The deliveries of an answer; one of which nothing can be read is not Conductor's."""
        found, errors = [], []
        for task in tasks:
            try:
                found.append(_delivery(task, token))
            except ValueError as error:
                errors.append((task, error))
        if errors and not found:
            raise errors[0][1]
        for task, problem in errors:
            self._on_unreadable(task_type, _why_unreadable(task, problem))
        return found

    def find_waiting(self, task_types: Sequence[str], *, domain: str | None = None) -> list[str]:
        """Ask in one request which queues hold anything; a task in one may not be due yet."""
        queues = {f"{domain}:{name}" if domain else name: name for name in task_types}
        sizes = self._queue_sizes("read the sizes of queues", list(queues))
        return [name for queue, name in queues.items() if sizes[queue]]

    def read(self, task_id: str) -> AttemptSnapshot:
        task = read_task(self._api, task_id, TASK, self._tries)
        return AttemptSnapshot(
            status=task.status,
            workflow_instance_id=task.workflow_instance_id,
            task_id=task.task_id,
            retry_count=task.retry_count,
            worker_id=task.worker_id,
            response_timeout_seconds=task.response_timeout_seconds,
            retried_task_id=task.retried_task_id or None,
            reason=task.reason_for_incompletion or None,
        )

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        found = read_workflow(
            self._api, workflow_instance_id, WORKFLOW, self._tries, with_tasks=False
        )
        # Conductor leaves the time of the last end on a workflow that is retried or rerun.
        return bool(found.end_time)

    def assert_answers(self) -> None:
        """Make sure that a Conductor answers here, and not just any web server.

        Where "not found" is acted upon, an address that knows no task at all would be fatal.
        """
        self._queue_sizes("read the size of a queue", ["perago"])

    def read_version(self) -> str:
        """Return the server's version; not every Conductor tells it."""
        what = "read its version"
        config = self._api.get(what, "/admin/config", parsed(CONFIG))
        if config is None:
            raise BackendUnavailableError(f"Conductor did not {what}: the answer is empty")
        return config.version

    @property
    def clock_difference(self) -> float | None:
        """How many seconds the server's clock is ahead, by its last answer; None if unknown."""
        return self._api.clock_difference

    def _queue_sizes(self, what: str, queues: Sequence[str]) -> dict[str, int]:
        """Conductor answers with every queue that it was asked for, also one it never had."""

        def read(body: bytes) -> dict[str, int]:
            sizes = parsed(SIZES)(body)
            if not sizes.keys() >= set(queues):
                raise ValueError("the size of a queue is missing")
            return sizes

        sizes = self._api.get(what, "/tasks/queue/sizes", read, {"taskType": list(queues)})
        if sizes is None:
            raise BackendUnavailableError(f"Conductor did not {what}: the answer is empty")
        return sizes

    def renew(self, claim: Claim) -> None:
        """Extend the lease. Only for a claim that was just read and found ours."""
        result = {**_result(claim, "IN_PROGRESS"), "extendLease": True}
        what = f"extend the lease of task {claim.attempt.task_id}"
        retry_change(retrying_times(self._tries), lambda: self._update(claim, result, what, 0.0))

    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None:
        """Post an outcome. Only for a claim that was just read and found ours."""
        task_id = claim.attempt.task_id
        if isinstance(outcome, Completed):
            result = {**_result(claim, "COMPLETED"), "outputData": outcome.output}
        else:
            result = _result(claim, outcome.disposition.value)
            result["reasonForIncompletion"] = told_reason(outcome)
        result["logs"] = [{"log": line, "taskId": task_id} for line in logs[:_MAX_LOG_ENTRIES]]
        self._update(claim, result, f"complete task {task_id}")

    def log(self, task_id: str, text: str) -> None:
        """Add an entry to a task's log; it changes nothing else of the task."""
        what = f"add to the log of task {task_id}"
        self._api.change(what, "POST", f"/tasks/{segment(task_id)}/log", text, nothing)

    def hand_back(self, claim: Claim) -> None:
        """Hand an attempt back: a plain IN_PROGRESS update puts it into the queue again."""
        what = f"hand back task {claim.attempt.task_id}"
        self._update(claim, _result(claim, "IN_PROGRESS"), what)

    def _update(
        self,
        claim: Claim,
        result: dict[str, Any],
        what: str,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        answer = exactly(claim.attempt.task_id)
        self._api.change(what, "POST", "/tasks", result, answer, unsent_seconds=unsent_seconds)


def _result(claim: Claim, status: str) -> dict[str, Any]:
    return {
        "workflowInstanceId": claim.attempt.workflow_instance_id,
        "taskId": claim.attempt.task_id,
        "workerId": claim.token,
        "status": status,
    }


def _why_unreadable(task: Any, error: ValueError) -> str:
    task_id = task.get("taskId") if isinstance(task, dict) else None
    reason = f"task {task_id!r} was claimed, and cannot be read: {reason_of(error)}"
    return shorten_line(reason, MAX_TEXT)


def _delivery(answered: Any, token: str) -> Delivery:
    task = TASK.validate_python(answered)
    if task.worker_id != token:
        raise ValueError("the task is claimed by another poll")
    attempt = Attempt(
        workflow_instance_id=task.workflow_instance_id,
        task_id=task.task_id,
        retry_count=task.retry_count,
        reference_name=task.reference_task_name,
        seq=task.seq,
        iteration=task.iteration,
        retried_task_id=task.retried_task_id or None,
        scheduled_ms=task.scheduled_time,
    )
    return Delivery(
        claim=Claim(attempt, token),
        task_type=task.task_def_name or task.task_type,
        payload=task.input_data or {},
        response_timeout_seconds=task.response_timeout_seconds,
    )
