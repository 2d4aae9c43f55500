"""Read tasks as people look at them: with their times, their output and their log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from perago.conductor.api import ConductorApi, Message, TaskMessage, parsed, segment
from perago.connections import ConductorConnection
from perago.errors import BackendUnavailableError, NotFoundError
from perago.protocol.identity import LogicalTask
from perago.retry import retrying_times

# Milliseconds, bounded by the years that a datetime can hold.
_Moment = Annotated[int, Field(ge=0, lt=1 << 47)]


class _TaskMessage(TaskMessage):
    start_time: _Moment = 0
    end_time: _Moment = 0
    output_data: dict[str, Any] | None = None


class _LogMessage(Message):
    log: str = ""
    created_time: _Moment = 0


_TASK = TypeAdapter(_TaskMessage)
_LOG = TypeAdapter(list[_LogMessage])


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


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a task's log."""

    text: str
    created: datetime | None


class ConductorInspection:
    """Reads tasks and their logs; changes nothing."""

    def __init__(self, connection: ConductorConnection) -> None:
        self._api = ConductorApi(connection)

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._api.close()

    def task(self, task_id: str) -> TaskView:
        """Read a task; raises ``NotFoundError`` where Conductor has none of that id."""
        what, path = f"read task {task_id}", f"/tasks/{segment(task_id)}"
        task = retrying_times()(self._api.get, what, path, parsed(_TASK))
        if task is None:
            raise NotFoundError(f"Conductor has no task {task_id}")
        if task.task_id != task_id:
            raise BackendUnavailableError(f"Conductor answered with another task to {what}")
        return _view(task)

    def log(self, task_id: str) -> list[LogEntry]:
        """Read a task's log, oldest entry first."""
        what, path = f"read the log of task {task_id}", f"/tasks/{segment(task_id)}/log"
        entries = retrying_times()(self._api.get, what, path, parsed(_LOG)) or []
        # A stable sort: entries of one update have one time, and come in their order.
        ordered = sorted(entries, key=lambda entry: entry.created_time)
        return [LogEntry(entry.log, _moment(entry.created_time)) for entry in ordered]


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
    )


def _moment(milliseconds: int) -> datetime | None:
    """Conductor's zero means "not yet"."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC) if milliseconds else None
