"""A small world for one logical task: a repository, a workflow, a worker, and what goes wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel

from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.protocol.job import (
    Check,
    Job,
    Policy,
    Ports,
    SparkPorts,
    StoragePorts,
    WorkspaceUse,
)
from perago.protocol.outcome import Completed, Failed, Outcome
from perago.protocol.ports import Delivery, Workspaces
from perago.protocol.record import Record
from perago.protocol.run import run_attempt
from perago.protocol.workspace import Commit
from perago.testing import (
    Faults,
    InMemoryConductor,
    InMemoryLake,
    InMemorySpark,
    InMemoryWorkspaces,
    ManualClock,
    TaskSettings,
)
from perago.testing.spark import InMemorySparkWorkspace

REPOSITORY = "repo"
TASK = "task"
Files = dict[str, bytes]


class Params(BaseModel):
    """What the task is told."""

    n: int = 0


class Result(BaseModel):
    """What the task says."""

    text: str = "done"


def nothing(_: Any) -> None:
    """A guardrail that holds, or a body that changes nothing."""


def silent(guardrail: Callable[[Any], None]) -> Check:
    """A check that never warns."""
    return lambda workspace, _warn: guardrail(workspace)


def writes(**files: bytes) -> Callable[[Files], None]:
    """A body that writes files below the prefix."""
    return lambda found: found.update(files)


def raising(error: BaseException) -> Callable[[Any], NoReturn]:
    """A body or a guardrail that raises."""

    def body(_: Any) -> NoReturn:
        raise error

    return body


class InMemoryWorld:
    """Everything one attempt touches. ``main`` holds ``data/a`` and ``other/x`` at ``ref``."""

    def __init__(self, *, policy: Policy | None = None, response_timeout: float = 60.0) -> None:
        self.faults = Faults()
        self.clock = ManualClock()
        self.lake = InMemoryLake(self.faults)
        self.conductor = InMemoryConductor(self.clock, self.faults)
        self.workspaces = InMemoryWorkspaces(self.lake)
        self.spark = InMemorySpark(self.lake)
        self.events: list[PhaseEvent] = []
        self.policy = policy or Policy()
        self.settings = TaskSettings(TASK, response_timeout_seconds=response_timeout)
        self.lake.create_repository(REPOSITORY)
        self.ref = self.commit({"data/a": b"1", "other/x": b"x"}).id
        self._numbers = itertools.count(1)

    def commit(
        self, changes: dict[str, bytes | None], metadata: dict[str, str] | None = None
    ) -> Commit:
        """Somebody else commits to ``main``."""
        return self.lake.write_and_commit(REPOSITORY, "main", changes, metadata)

    def abandon(
        self, changes: dict[str, bytes | None], delivery: Delivery, execution_id: str = "dead"
    ) -> Commit:
        """A dead execution of a delivery's logical task has published and never completed."""
        execution = Execution(delivery.claim, execution_id)
        record = Record.of(execution, ref=self.ref, params={"n": 1})
        return self.commit(changes, record.metadata())

    def payload(self, **workspace: Any) -> dict[str, Any]:
        given = {"repository": REPOSITORY, "branch": "main", "ref_type": "commit", "ref": self.ref}
        return {"workspace": {**given, **workspace}, "params": {"n": 1}}

    def deliver(self, payload: dict[str, Any] | None = None, **start: Any) -> Delivery:
        """Start a workflow and claim its task."""
        self.conductor.start(self.settings, payload or self.payload(), **start)
        return self.claim()

    def claim(self) -> Delivery:
        delivery = self.conductor.poll(TASK, f"claim-{next(self._numbers)}")
        assert delivery is not None
        return delivery

    def job(
        self,
        body: Callable[[Files], Any] = nothing,
        *,
        read_only: bool = False,
        pre: Callable[[Path], None] = nothing,
        post: Callable[[Path], None] = nothing,
        recovery: Literal["replace", "adopt"] = "replace",
        result_model: type[BaseModel] = Result,
        merge_timeout: float = 60.0,
    ) -> Job:
        """A job whose body changes the projection's files and returns a result, or None."""

        def run(data: Path, params: BaseModel) -> Any:
            found = body(self.workspaces.files_at(data))
            return Result() if found is None else found

        space = WorkspaceUse("data", read_only, silent(pre), silent(post))
        return Job(TASK, Params, result_model, run, space, recovery, merge_timeout)

    def spark_job(
        self,
        body: Callable[[InMemorySparkWorkspace], Any] = nothing,
        *,
        read_only: bool = False,
        pre: Callable[[InMemorySparkWorkspace], None] = nothing,
        post: Callable[[InMemorySparkWorkspace], None] = nothing,
        recovery: Literal["replace", "adopt"] = "replace",
        prefix: str = "data",
        result_model: type[BaseModel] = Result,
    ) -> Job:
        """A job whose body writes to its staging branch and returns a result, or None."""

        def run(workspace: InMemorySparkWorkspace, params: BaseModel) -> Any:
            found = body(workspace)
            return Result() if found is None else found

        space = WorkspaceUse(prefix, read_only, silent(pre), silent(post), "spark")
        return Job(TASK, Params, result_model, run, space, recovery)

    def ports(self, workspaces: Workspaces | None = None) -> Ports:
        return Ports(
            attempts=self.conductor,
            clock=self.clock,
            events=self.events.append,
            policy=self.policy,
            storage=StoragePorts(
                self.lake,
                workspaces or self.workspaces,
                SparkPorts(self.spark, self.lake.objects),
            ),
        )

    def run(self, job: Job, delivery: Delivery | None = None) -> Outcome:
        """Run one execution of a delivery (or of a new workflow)."""
        given = delivery or self.deliver()
        execution = Execution(given.claim, f"exec{next(self._numbers)}")
        return run_attempt(job, execution, given.payload, self.ports())

    def publish_and_die(self, job: Job, delivery: Delivery | None = None) -> Delivery:
        """An attempt publishes and its worker dies before completing; the retry is returned."""
        given = delivery or self.deliver()
        assert isinstance(self.run(job, given), Completed)
        self.clock.advance(self.settings.response_timeout_seconds)
        self.conductor.decide(given.claim.attempt.workflow_instance_id)
        return self.claim()

    @property
    def head(self) -> Commit:
        repo = self.lake.repository(REPOSITORY)
        return repo.commit(repo.branch("main").head)

    def contents(self, ref: str = "main") -> dict[str, bytes]:
        return self.lake.contents(REPOSITORY, ref)

    @property
    def staging_branches(self) -> list[str]:
        return sorted(set(self.lake.repository(REPOSITORY).branches) - {"main"})

    @property
    def tags(self) -> dict[str, str]:
        return self.lake.repository(REPOSITORY).tags

    def told(self, action: str) -> list[dict[str, Any]]:
        """The details of every event with that action."""
        return [event.details for event in self.events if event.action == action]

    def phases(self) -> list[str]:
        return [event.phase for event in self.events if event.action == "phase_started"]


def completed(outcome: Outcome) -> dict[str, Any]:
    """The output of an attempt that must have completed."""
    assert isinstance(outcome, Completed), outcome
    return outcome.output


def failed(outcome: Outcome, error: type[BaseException], status: str = "FAILED") -> str:
    """The reason of an attempt that must have failed with that error and that status."""
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason.split(":")[0] == error.__name__, outcome.trace
    assert outcome.disposition.value == status
    return outcome.reason


def assert_untouched(world: InMemoryWorld) -> None:
    """Nothing was published, and nothing is left of the attempt."""
    assert world.head.id == world.ref
    assert world.staging_branches == []
    assert world.tags == {}
