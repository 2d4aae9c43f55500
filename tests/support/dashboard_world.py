"""What the dashboard shows, in memory: a repository, workflows, attempts and a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perago.conductor.inspection import (
    LogEntry,
    QueueView,
    TaskView,
    WorkflowSummary,
    WorkflowView,
)
from perago.dashboard.sources import Sources
from perago.errors import BackendUnavailableError, NotFoundError
from perago.observability.metrics import WorkerMetrics
from perago.observability.running import PhaseView, RunningView
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed, Failed, told_reason
from perago.protocol.ports import Change, Delivery
from perago.protocol.workspace import BranchHead
from perago.testing import InMemoryLake
from perago.worker.report import task_log
from support.memory_world import REPOSITORY, InMemoryWorld, raising, writes
from support.workflows import fork, join, step

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
LEASE = 60.0
HOSTILE = "<script>alert('perago')</script>\"'&"


class LakeView:
    """The in-memory lake as a source of the dashboard."""

    def __init__(self, lake: InMemoryLake) -> None:
        self._lake = lake
        self.default_branch = lake.default_branch
        self.log = lake.log
        self.get_commit = lake.get_commit
        self.list_tags = lake.list_tags
        self.list_branches = lake.list_branches

    def changes(self, repository: str, base: str, commit: str) -> Iterator[Change]:
        return self._lake.objects.changes(repository, base, commit)

    def repositories(self, amount: int) -> list[tuple[str, str]]:
        return [(REPOSITORY, "main")][:amount]

    def branches(self, repository: str, amount: int) -> list[BranchHead]:
        return self._lake.list_branches(repository, "")[:amount]


@dataclass
class ConductorView:
    """Workflows and logs that tests put in, as a source of the dashboard."""

    workflows: dict[str, WorkflowView] = field(default_factory=dict)
    logs: dict[str, list[LogEntry]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    # Raised by every call while it is set.
    outage: BackendUnavailableError | None = None
    reads: int = 0

    def workflow(self, workflow_id: str) -> WorkflowView:
        self._check()
        self.reads += 1
        if workflow_id not in self.workflows:
            raise NotFoundError(f"Conductor has no workflow {workflow_id}")
        return self.workflows[workflow_id]

    def find_workflows(self, amount: int, *, running: bool = False) -> list[WorkflowSummary]:
        self._check()
        found = [it for it in self.workflows.values() if not running or it.status == "RUNNING"]
        return [WorkflowSummary(it.workflow_id, it.status, "1") for it in found][:amount]

    def queues(self) -> list[QueueView]:
        self._check()
        return [QueueView(name, count, NOW) for name, count in sorted(self.waiting.items())]

    def task(self, task_id: str) -> TaskView:
        self._check()
        for workflow in self.workflows.values():
            for task in workflow.tasks:
                if task.task_id == task_id:
                    return task
        raise NotFoundError(f"Conductor has no task {task_id}")

    def log(self, task_id: str) -> Sequence[LogEntry]:
        self._check()
        return self.logs.get(task_id, [])

    def _check(self) -> None:
        if self.outage is not None:
            raise self.outage


@dataclass
class WorkerView:
    """A worker that tells what tests put in."""

    name: str = "this worker"
    counted: WorkerMetrics = field(default_factory=WorkerMetrics)
    attempts: list[RunningView] = field(default_factory=list)

    def metrics(self) -> str:
        return self.counted.render().decode()

    def running(self) -> list[RunningView]:
        return self.attempts


class DashboardWorld:
    """An in-memory world, and everything that the dashboard reads about it."""

    def __init__(self) -> None:
        self.world = InMemoryWorld()
        self.conductor = ConductorView()
        self.worker = WorkerView()
        self.sources = Sources(
            self.conductor, LakeView(self.world.lake), [self.worker], now=lambda: NOW
        )

    def attempt(
        self,
        body: Callable[[Any], Any],
        delivery: Delivery | None = None,
        *,
        output: str = "",
        reference: str | None = None,
    ) -> TaskView:
        """Run an attempt to its end, with its log in Conductor; return its task."""
        given = delivery or self.world.deliver()
        self.world.events.clear()
        outcome = self.world.run(self.world.job(body), given)
        events = [_with_seconds(event) for event in self.world.events]
        task = task_view(given)
        ended = replace(task, ended=NOW - timedelta(seconds=1), updated=NOW)
        if isinstance(outcome, Failed):
            ended = replace(ended, status=outcome.disposition.value, reason=told_reason(outcome))
        else:
            assert isinstance(outcome, Completed)
            ended = replace(ended, status="COMPLETED", output=outcome.output)
        if reference is not None:
            ended = replace(ended, logical=replace(ended.logical, reference_name=reference))
        lines = task_log(events, outcome, output)
        self.conductor.logs[ended.task_id] = [LogEntry(text, NOW) for text in lines]
        return ended

    def running(self, task: str = "clean") -> TaskView:
        """Claim an attempt that the worker runs now, in its body."""
        given = self.world.deliver()
        view = replace(task_view(given), task_name=task)
        attempt = given.claim.attempt
        self.worker.attempts.append(
            RunningView(
                task=task,
                task_id=attempt.task_id,
                workflow_id=attempt.workflow_instance_id,
                retry=attempt.retry_count,
                slot=0,
                phase="body",
                seconds=12.5,
                phases=(
                    PhaseView(phase="validate", seconds=0.02),
                    PhaseView(phase="download", seconds=1.4),
                    PhaseView(phase="pre_guardrails", seconds=0.1),
                ),
                progress="progress: 12 of 40",
                spark_ui="http://127.0.0.1:4040",
            )
        )
        return view

    def add(self, *tasks: TaskView, name: str = "nightly", status: str | None = None) -> str:
        """Put a workflow of these attempts into Conductor; return its id."""
        workflow_id = tasks[0].logical.workflow_instance_id
        open_ = any(task.status in {"SCHEDULED", "IN_PROGRESS"} for task in tasks)
        last = "RUNNING" if open_ else tasks[-1].status.removesuffix("_WITH_TERMINAL_ERROR")
        references = list(dict.fromkeys(task.logical.reference_name for task in tasks))
        steps = [step(it) for it in references]
        self.conductor.workflows[workflow_id] = WorkflowView(
            workflow_id=workflow_id,
            name=name,
            status=status or last,
            started=NOW - timedelta(seconds=20),
            ended=None if open_ else NOW,
            reason=None,
            tasks=tasks,
            definition={"tasks": steps},
        )
        return workflow_id


def task_view(delivery: Delivery, name: str = "clean") -> TaskView:
    """A claimed attempt as Conductor shows it, three seconds after its claim."""
    attempt = delivery.claim.attempt
    return TaskView(
        task_id=attempt.task_id,
        task_name=name,
        status="IN_PROGRESS",
        logical=attempt.logical,
        workflow_name="task-workflow",
        retry_count=attempt.retry_count,
        retried_task_id=attempt.retried_task_id,
        claim=delivery.claim.token,
        reason=None,
        scheduled=NOW - timedelta(seconds=5),
        started=NOW - timedelta(seconds=3),
        ended=None,
        input=delivery.payload,
        output={},
        updated=NOW - timedelta(seconds=3),
        response_timeout_seconds=LEASE,
    )


_SECONDS = {"download": 1.2, "body": 4.8, "stage": 0.7, "publish": 0.05, "diff": 0.2}


def _with_seconds(event: PhaseEvent) -> PhaseEvent:
    """The manual clock stands still: give phases times that can be seen."""
    if event.seconds is None:
        return event
    return replace(event, seconds=_SECONDS.get(event.phase, 0.03))


def empty() -> DashboardWorld:
    """Servers without work, and a worker without an attempt."""
    made = DashboardWorld()
    made.worker.counted.set_slots(4)
    return made


def busy() -> DashboardWorld:
    """A replaced publication, a withdrawn one, a person's commit, and an attempt that runs."""
    made = DashboardWorld()
    world, counted = made.world, made.worker.counted
    given = world.deliver()
    world.abandon({"data/a": b"abandoned", "data/old.csv": b"1,2"}, given)
    replaced = made.attempt(
        writes(**{"a": b"2", "clean/part-0.parquet": b"x" * 4000}),
        given,
        output="read 1200 rows\nwrote 1187 rows",
        reference="clean_events",
    )
    made.add(replaced, name="nightly-events")
    world.commit({"notes/readme.md": b"by hand"})
    world.ref = world.head.id
    published = made.attempt(writes(**{"report.html": b"<p>"}), reference="report")
    made.add(published, name="report")
    running = made.running("join_orders")
    workflow = made.add(running, name="orders")
    view = made.conductor.workflows[workflow]
    made.conductor.workflows[workflow] = replace(view, definition=FORKED)
    made.conductor.waiting = {"clean": 3, "join_orders": 0}
    counted.set_slots(4)
    counted.set_busy_slots(1)
    counted.poll_succeeded()
    for _ in range(37):
        counted.finished("clean", Completed({}))
    _measure(counted)
    return made


FORKED = {
    "tasks": [
        step("extract"),
        fork(
            [step("clean_orders", name="clean"), step("step", name="join_orders")],
            [step("clean_people", name="clean")],
        ),
        join("step", "clean_people"),
        step("publish_report", name="report"),
    ]
}


def _measure(counted: WorkerMetrics) -> None:
    times = [0.02, 0.03, 0.03, 0.05, 0.05, 0.05, 0.07, 0.07, 0.1, 0.14, 0.2, 0.3, 1.2]
    for seconds in times * 3:
        event = PhaseEvent("phase_ended", "publish", seconds, {"how": "merged"})
        counted.observe("clean", event)
    counted.set_publish_budget("clean", 5.0)


def broken() -> DashboardWorld:
    """Failed attempts whose texts are hostile."""
    made = DashboardWorld()
    first = made.attempt(raising(ValueError(HOSTILE)), output=HOSTILE, reference="clean_events")
    given = made.world.deliver()

    def moved(_: Any) -> None:
        made.world.commit({f"data/{HOSTILE}": b"1"})
        made.world.commit({"data/y": b"1"})

    second = made.attempt(moved, given, reference="publish_report")
    made.add(first, name=HOSTILE)
    made.add(second, name="report")
    made.worker.counted.set_slots(2)
    return made
