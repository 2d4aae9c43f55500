"""Read tasks and workflows as people look at them: with times, outputs, definitions and logs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from perago.conductor.api import (
    ConductorApi,
    ConductorMessage,
    Count,
    Moment,
    TaskTimesMessage,
    WorkflowTimesMessage,
    parsed,
    read_task,
    read_workflow,
    segment,
    shallow,
)
from perago.connections import ConductorConnection
from perago.errors import BackendUnavailableError, NotFoundError
from perago.protocol.identity import LogicalTask
from perago.retry import TRIES, retrying_times

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class _TypeMessage(ConductorMessage):
    type: str | None = None


class _TaskMessage(TaskTimesMessage):
    update_time: Moment = 0
    workflow_task: _TypeMessage | None = None


class _SummaryMessage(ConductorMessage):
    task_id: Annotated[str, Field(min_length=1)]


class _FoundMessage(ConductorMessage):
    results: list[_SummaryMessage]


class _LogMessage(ConductorMessage):
    log: str = ""
    created_time: Moment = 0


class _WorkflowMessage(WorkflowTimesMessage):
    workflow_definition: dict[str, Any] | None = None
    tasks: list[_TaskMessage] | None = None


class _WorkflowSummaryMessage(ConductorMessage):
    workflow_id: Annotated[str, Field(min_length=1)]
    status: str
    update_time: str | None = None
    end_time: str | None = None


class _WorkflowsFoundMessage(ConductorMessage):
    results: list[_WorkflowSummaryMessage]


class _PollMessage(ConductorMessage):
    queue_name: str
    domain: str | None = None
    last_poll_time: Moment = 0


_TASK = TypeAdapter(_TaskMessage)
_LOG = TypeAdapter(list[_LogMessage])
_FOUND = TypeAdapter(_FoundMessage)
_WORKFLOW = TypeAdapter(_WorkflowMessage)
_WORKFLOWS_FOUND = TypeAdapter(_WorkflowsFoundMessage)
_POLLS = TypeAdapter(list[_PollMessage])
_SIZES = TypeAdapter(dict[str, Count])
# Each of them is read by itself.
MOST_RUNNING = 200


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of Conductor's, with all that it tells about it."""

    task_id: str
    task_name: str
    status: str
    logical: LogicalTask
    workflow_name: str
    retry_count: int
    retried_task_id: str | None
    claim: str | None
    reason: str | None
    scheduled: datetime | None
    started: datetime | None
    ended: datetime | None
    input: dict[str, Any]
    output: dict[str, Any]
    # When a lease was last renewed, or anything else was written.
    updated: datetime | None = None
    response_timeout_seconds: float = 0.0
    # SIMPLE for the tasks of workers; else one of Conductor's own.
    kind: str = "SIMPLE"

    @property
    def lease_ends(self) -> datetime | None:
        """When Conductor gives the attempt away, unless its lease is renewed before."""
        if self.status != "IN_PROGRESS" or self.updated is None:
            return None
        if not self.response_timeout_seconds:
            return None
        return self.updated + timedelta(seconds=self.response_timeout_seconds)


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow instance with the attempts of its steps, in the order of their scheduling."""

    workflow_id: str
    name: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str | None
    tasks: tuple[TaskView, ...] = ()
    # As Conductor has it: {"tasks": […], …}.
    definition: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A workflow instance as a search finds it; ``version`` changes with its state."""

    workflow_id: str
    status: str
    version: str


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue of tasks: how many wait, and when a worker last asked for one."""

    name: str
    waiting: int
    last_poll: datetime | None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a task's log."""

    text: str
    created: datetime | None


class ConductorInspection:
    """Reads tasks and their logs; changes nothing."""

    def __init__(self, connection: ConductorConnection, *, tries: int = TRIES) -> None:
        self._api = ConductorApi(connection)
        self._tries = tries

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._api.close()

    def task(self, task_id: str) -> TaskView:
        """Read a task; raises ``NotFoundError`` where Conductor has none of that id."""
        return _view(read_task(self._api, task_id, _TASK, self._tries))

    def running(self) -> list[TaskView]:
        """Read the tasks that are claimed and have not ended, the oldest claim first.

        Conductor finds them in its index, which may lag; so each is read as it is now.
        """
        query = {"start": 0, "size": MOST_RUNNING, "query": "status IN (IN_PROGRESS)"}
        what = "search for running tasks"
        found = retrying_times(self._tries)(
            self._api.get, what, "/tasks/search", parsed(_FOUND), query
        )
        if found is None:
            raise BackendUnavailableError(f"Conductor did not {what}: the answer is empty")
        views: list[TaskView] = []
        for summary in found.results:
            with suppress(NotFoundError):  # removed since it was found
                views.append(self.task(summary.task_id))
        running = [view for view in views if view.status == "IN_PROGRESS"]
        return sorted(running, key=lambda view: view.started or _LONG_AGO)

    def log(self, task_id: str) -> list[LogEntry]:
        """Read a task's log, oldest entry first."""
        what, path = f"read the log of task {task_id}", f"/tasks/{segment(task_id)}/log"
        entries = retrying_times(self._tries)(self._api.get, what, path, parsed(_LOG)) or []
        # A stable sort: entries of one update have one time, and come in their order.
        ordered = sorted(entries, key=lambda entry: entry.created_time)
        return [LogEntry(entry.log, _moment(entry.created_time)) for entry in ordered]

    def workflow(self, workflow_id: str) -> WorkflowView:
        """Read a workflow with its attempts; raises ``NotFoundError`` where there is none."""
        found = read_workflow(self._api, workflow_id, _WORKFLOW, self._tries)
        return WorkflowView(
            workflow_id=found.workflow_id,
            name=found.workflow_name or "",
            status=found.status,
            started=_moment(found.started_ms),
            ended=_moment(found.end_time or 0),
            reason=found.reason_for_incompletion or None,
            tasks=tuple(_view(task) for task in found.tasks or []),
            definition=found.workflow_definition or {},
        )

    def find_workflows(self, amount: int, *, running: bool = False) -> list[WorkflowSummary]:
        """Find the workflows that were started last, or those among them that still run."""
        query: dict[str, Any] = {"start": 0, "size": amount, "sort": "startTime:DESC"}
        if running:
            query["query"] = "status IN (RUNNING)"
        found = retrying_times(self._tries)(
            self._api.get, "search workflows", "/workflow/search", shallow(_WORKFLOWS_FOUND), query
        )
        results = found.results[:amount] if found is not None else []
        return [
            WorkflowSummary(it.workflow_id, it.status, f"{it.update_time} {it.end_time}")
            for it in results
        ]

    def queues(self) -> list[QueueView]:
        """List the queues that hold tasks or that workers poll, by name."""
        polls = retrying_times(self._tries)(
            self._api.get, "read who polls", "/tasks/queue/polldata/all", shallow(_POLLS)
        )
        sizes = retrying_times(self._tries)(
            self._api.get, "read the sizes of queues", "/tasks/queue/all", shallow(_SIZES)
        )
        polled = {
            f"{it.domain}:{it.queue_name}" if it.domain else it.queue_name: it.last_poll_time
            for it in polls or []
        }
        # Conductor's own begin with an underscore.
        waiting = {name: size for name, size in (sizes or {}).items() if not name.startswith("_")}
        names = {*polled, *(name for name, size in waiting.items() if size > 0)}
        return [
            QueueView(name, waiting.get(name, 0), _moment(polled.get(name, 0)))
            for name in sorted(names)
        ]


def _view(task: _TaskMessage) -> TaskView:
    return TaskView(
        task_id=task.task_id,
        task_name=task.task_def_name or task.task_type,
        status=task.status,
        logical=LogicalTask(task.workflow_instance_id, task.reference_task_name, task.iteration),
        workflow_name=task.workflow_type or "",
        retry_count=task.retry_count,
        retried_task_id=task.retried_task_id or None,
        claim=task.worker_id or None,
        reason=task.reason_for_incompletion or None,
        scheduled=_moment(task.scheduled_time),
        started=_moment(task.start_time),
        ended=_moment(task.end_time),
        input=task.input_data or {},
        output=task.output_data or {},
        updated=_moment(task.update_time),
        response_timeout_seconds=task.response_timeout_seconds,
        kind=(task.workflow_task and task.workflow_task.type) or task.task_type,
    )


def _moment(milliseconds: int) -> datetime | None:
    """Conductor's zero means "not yet"."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC) if milliseconds else None
