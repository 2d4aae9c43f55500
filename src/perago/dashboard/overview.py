"""What runs now: workers and their slots, queues, running attempts, and how the last ones ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from perago.conductor.inspection import QueueView, TaskView, WorkflowView
from perago.dashboard.kept import RecentValues
from perago.dashboard.rendering import PageProblem
from perago.dashboard.sources import Sources
from perago.errors import BackendError, NotFoundError, PeragoError
from perago.names import LIVE_STATUSES, OPEN_STATUSES
from perago.observability.running import RunningView, WorkerState

MOST_RUNNING = 25
MOST_RECENT = 15
MOST_OUTCOMES = 20
MOST_QUEUES = 50
_MOST_KEPT = 4 * MOST_RECENT

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, from its metrics."""

    name: str
    slots: int
    busy: int
    last_poll: datetime | None
    ended: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunningRow:
    """An attempt under way; ``phase`` is None where a worker that is not shown runs it."""

    task_id: str
    task: str
    workflow_id: str
    reference: str
    retry: int
    phase: str | None
    progress: str | None
    seconds: float
    lease_left: float | None
    lease_seconds: float
    spark_ui: str | None


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """An attempt that ended."""

    task: TaskView
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page."""

    workers: tuple[WorkerRow, ...]
    queues: tuple[QueueView, ...]
    running: tuple[RunningRow, ...]
    outcomes: tuple[OutcomeRow, ...]
    workflows: tuple[WorkflowView, ...]
    problems: tuple[PageProblem, ...]


class OverviewReader:
    """Reads the overview; keeps workflows that are over, so that they are read once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._over: RecentValues[tuple[str, str], WorkflowView] = RecentValues(_MOST_KEPT)

    def read(self) -> Overview:
        """Read everything; what cannot be read is a problem on the page."""
        problems: list[PageProblem] = []
        workers: list[WorkerRow] = []
        told: list[RunningView] = []
        workflows: tuple[WorkflowView, ...] = ()
        queues: tuple[QueueView, ...] = ()
        for worker in self._sources.workers:
            with _noting(problems):
                workers.append(read_worker(worker))
                told += worker.running()
        with _noting(problems):
            workflows = self._workflows()
        with _noting(problems):
            queues = tuple(self._sources.conductor.queues())[:MOST_QUEUES]
        tasks = [task for it in workflows for task in it.tasks if task.kind == "SIMPLE"]
        return Overview(
            tuple(workers),
            queues,
            tuple(self._running(tasks, told))[:MOST_RUNNING],
            tuple(_outcomes(tasks))[:MOST_OUTCOMES],
            workflows,
            tuple(problems),
        )

    def _workflows(self) -> tuple[WorkflowView, ...]:
        """The workflows that run, and the last ones."""
        conductor = self._sources.conductor
        found = {
            it.workflow_id: it
            for it in (
                *conductor.find_workflows(MOST_RUNNING, running=True),
                *conductor.find_workflows(MOST_RECENT),
            )
        }
        views = []
        for summary in found.values():
            key = summary.workflow_id, f"{summary.status} {summary.version}"
            view = self._over.get(key)
            if view is None:
                try:
                    view = conductor.workflow(summary.workflow_id)
                except NotFoundError:  # removed since it was found
                    continue
                if view.status not in LIVE_STATUSES:
                    self._over.keep(key, view)
            views.append(view)
        return tuple(sorted(views, key=lambda view: view.started or _NEVER, reverse=True))

    def _running(
        self, tasks: Sequence[TaskView], told: Sequence[RunningView]
    ) -> Iterator[RunningRow]:
        now = self._sources.now()
        phases = {it.task_id: it for it in told}
        for task in tasks:
            if task.status != "IN_PROGRESS":
                continue
            running = phases.pop(task.task_id, None)
            ends = task.lease_ends
            yield RunningRow(
                task_id=task.task_id,
                task=task.task_name,
                workflow_id=task.logical.workflow_instance_id,
                reference=task.logical.reference_name,
                retry=task.retry_count,
                phase=running.phase if running else None,
                progress=running.progress if running else None,
                seconds=running.seconds if running else _since(task.started, now),
                lease_left=max((ends - now).total_seconds(), 0.0) if ends else None,
                lease_seconds=task.response_timeout_seconds,
                spark_ui=running.spark_ui if running else None,
            )
        # What the worker knows and the search does not find yet.
        for running in phases.values():
            yield RunningRow(
                running.task_id,
                running.task,
                running.workflow_id,
                "",
                running.retry,
                running.phase,
                running.progress,
                running.seconds,
                None,
                0.0,
                running.spark_ui,
            )


@contextmanager
def _noting(problems: list[PageProblem]) -> Iterator[None]:
    """Put what a server could not do on the page, once."""
    try:
        yield
    except BackendError as error:
        problem = PageProblem.of(error)
        if problem not in problems:
            problems.append(problem)


def read_worker(worker: WorkerState) -> WorkerRow:
    """Read a worker's own figures."""
    slots = busy = 0
    last_poll = 0.0
    ended: dict[str, int] = {}
    try:
        for family in text_string_to_metric_families(worker.metrics()):
            for sample in family.samples:
                if sample.name == "perago_slots":
                    slots = int(sample.value)
                elif sample.name == "perago_busy_slots":
                    busy = int(sample.value)
                elif sample.name == "perago_last_poll_timestamp_seconds":
                    last_poll = sample.value
                elif sample.name == "perago_attempts_total":
                    outcome = sample.labels["outcome"]
                    ended[outcome] = ended.get(outcome, 0) + int(sample.value)
        polled = datetime.fromtimestamp(last_poll, tz=UTC) if last_poll else None
    except PeragoError:
        raise
    except (KeyError, ValueError, OverflowError, OSError):
        raise BackendError(f"the {worker.name} is not one of Perago's") from None
    return WorkerRow(worker.name, slots, busy, polled, ended)


def _outcomes(tasks: Sequence[TaskView]) -> Iterator[OutcomeRow]:
    over = [task for task in tasks if task.status not in OPEN_STATUSES and task.ended is not None]
    for task in sorted(over, key=lambda task: task.ended or _NEVER, reverse=True):
        yield OutcomeRow(task, seconds_of(task))


def seconds_of(task: TaskView, now: datetime | None = None) -> float | None:
    """How long an attempt ran, or has been running until ``now``."""
    end = task.ended or now
    if task.started is None or end is None:
        return None
    return max((end - task.started).total_seconds(), 0.0)


def _since(moment: datetime | None, now: datetime) -> float:
    return max((now - moment).total_seconds(), 0.0) if moment else 0.0
