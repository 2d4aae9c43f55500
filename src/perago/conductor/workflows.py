"""Workflows in Conductor: register a definition, start an instance, read how far it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from perago.conductor.api import (
    TASKDEF,
    ConductorApi,
    ConductorMessage,
    Count,
    Moment,
    TaskTimesMessage,
    WorkflowMessage,
    WorkflowTimesMessage,
    read_workflow,
    segment,
    shallow,
)
from perago.connections import ConductorConnection
from perago.errors import BackendRefusedError, BackendUnavailableError, NotFoundError
from perago.http_errors import parse_json
from perago.names import LIVE_STATUSES
from perago.retry import TRIES, UNSENT_SECONDS, retrying_times

# A UUID, unless the server was given another generator of ids.
_WORKFLOW_ID = re.compile(r"[\w-]{16,128}", re.ASCII)


class _StepAttemptMessage(TaskTimesMessage):
    """A task, as its workflow's answer holds it."""

    retried: bool = False
    callback_after_seconds: Count = 0
    start_delay_in_seconds: Count = 0


class _RunMessage(WorkflowTimesMessage):
    """A workflow with its tasks."""

    workflow_version: Count = 0
    output: dict[str, Any] | None = None
    tasks: list[_StepAttemptMessage] | None = None


class _BulkMessage(ConductorMessage):
    """What became of each entry of a list: the refused ones, by name, with the reason."""

    bulk_error_results: dict[str, str]


class _PollMessage(ConductorMessage):
    last_poll_time: Moment


_RUN = TypeAdapter(_RunMessage)
_RUNS = TypeAdapter(list[WorkflowMessage])
_BULK = TypeAdapter(_BulkMessage)
_POLLS = TypeAdapter(list[_PollMessage])


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """An attempt of one of a workflow's steps, as Conductor has it now."""

    reference: str
    task: str
    # Conductor's type of the step; for a task of a worker that is its name.
    kind: str
    task_id: str
    status: str
    retry_count: int
    scheduled_ms: int
    started_ms: int
    ended_ms: int
    # Whether a later attempt took its place.
    is_retried: bool
    # Seconds until Conductor hands it out: the wait before a retry.
    delay_seconds: int
    reason: str | None = None
    output: dict[str, Any] = field(default_factory=dict)

    @property
    def is_for_worker(self) -> bool:
        """Whether a worker runs it, and not Conductor itself."""
        return self.kind == self.task


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A workflow instance as Conductor has it now."""

    workflow_id: str
    name: str
    version: int
    status: str
    started_ms: int
    ended_ms: int
    reason: str | None = None
    output: dict[str, Any] = field(default_factory=dict)
    attempts: tuple[StepAttempt, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.status not in LIVE_STATUSES


class ConductorWorkflows:
    """Definitions as plain dicts, in Conductor's own spelling; instances as values."""

    def __init__(self, connection: ConductorConnection, *, tries: int = TRIES) -> None:
        """``tries`` is for reads; a change is one request."""
        self._api = ConductorApi(connection)
        self._tries = tries

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def get_definition(self, name: str, version: int) -> dict[str, Any] | None:
        """Return a registered definition as the server wrote it, or None."""

        def read(body: bytes) -> dict[str, Any]:
            definition = TASKDEF.validate_python(parse_json(body))
            if definition.get("name") != name:
                raise ValueError("the answer is not the definition that was asked for")
            return definition

        what, path = f"read workflow {name!r}", f"/metadata/workflow/{segment(name)}"
        try:
            return self._api.get(what, path, read, {"version": version})
        except NotFoundError:
            return None

    def put_definition(self, definition: dict[str, Any]) -> None:
        """Create or replace one version of a definition."""
        what = f"register workflow {definition['name']!r}"

        def read(body: bytes) -> None:
            errors = _BULK.validate_python(parse_json(body)).bulk_error_results
            if errors:
                # Conductor answers 200 and says inside which of the list it refused.
                raise BackendRefusedError(
                    f"Conductor could not {what}: {'; '.join(errors.values())}"
                )

        self._api.change(
            what, "PUT", "/metadata/workflow", [definition], read, unsent_seconds=UNSENT_SECONDS
        )

    def start(self, request: dict[str, Any]) -> str:
        """Start an instance and return its id; never repeated, so a reply can be lost."""
        found: list[str] = []

        def read(body: bytes) -> None:
            text = body.decode("ascii").strip().strip('"')
            if _WORKFLOW_ID.fullmatch(text) is None:
                raise ValueError("the answer is not the id of a workflow")
            found.append(text)

        what = f"start workflow {request['name']!r}"
        self._api.change(what, "POST", "/workflow", request, read, unsent_seconds=UNSENT_SECONDS)
        if not found:
            raise BackendUnavailableError(f"Conductor did not {what}: the answer is empty")
        return found[0]

    def find(self, name: str, correlation_id: str) -> list[str]:
        """Return the ids of the instances that were started with a correlation id."""
        what = f"look for workflows with correlation id {correlation_id}"
        path = f"/workflow/{segment(name)}/correlated/{segment(correlation_id)}"
        query = {"includeClosed": "true", "includeTasks": "false"}
        found = retrying_times(self._tries)(self._api.get, what, path, shallow(_RUNS), query)
        return [item.workflow_id for item in found or []]

    def read(self, workflow_id: str) -> WorkflowRun:
        """Read an instance with all attempts of its steps, in the order they were scheduled."""
        found = read_workflow(self._api, workflow_id, _RUN, self._tries)
        return WorkflowRun(
            workflow_id=found.workflow_id,
            name=found.workflow_name or "",
            version=found.workflow_version,
            status=found.status,
            started_ms=found.started_ms,
            ended_ms=found.end_time or 0,
            reason=found.reason_for_incompletion or None,
            output=found.output or {},
            attempts=tuple(_step_attempt(task) for task in found.tasks or []),
        )

    def last_poll_ms(self, task_type: str) -> int | None:
        """Return when a worker last polled for a task, in Conductor's clock; None if never."""
        what = f"read who polls for {task_type!r}"
        query = {"taskType": task_type}
        polls = retrying_times(self._tries)(
            self._api.get, what, "/tasks/queue/polldata", shallow(_POLLS), query
        )
        return max((item.last_poll_time for item in polls or []), default=None)


def _step_attempt(task: _StepAttemptMessage) -> StepAttempt:
    return StepAttempt(
        reference=task.reference_task_name,
        task=task.task_def_name or task.task_type,
        kind=task.task_type,
        task_id=task.task_id,
        status=task.status,
        retry_count=task.retry_count,
        scheduled_ms=task.scheduled_time,
        started_ms=task.start_time,
        ended_ms=task.end_time,
        is_retried=task.retried,
        delay_seconds=max(task.callback_after_seconds, task.start_delay_in_seconds),
        reason=task.reason_for_incompletion or None,
        output=task.output_data or {},
    )
