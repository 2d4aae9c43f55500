"""The supervisor's dealings with Conductor, and what it clears away after an executor."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from perago.conductor.client import ConductorAttempts
from perago.errors import (
    BackendError,
    BackendRefusedError,
    ExecutorDiedError,
    SparkServerDiedError,
)
from perago.lakefs.control import LakeFSControl
from perago.observability.logs import log_phase
from perago.observability.metrics import WorkerMetrics
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.protocol.outcome import Completed, Failed, Outcome, describe, failure_of
from perago.protocol.ports import Delivery
from perago.protocol.workspace import StagingBranch
from perago.spark.runtime import SparkRuntime
from perago.tasks.controls import LONGEST_HEARTBEAT_SECONDS
from perago.tasks.definition import TaskDefinition
from perago.text import shorten_value
from perago.transfer.sweep import clear
from perago.worker.heartbeat import Heartbeat
from perago.worker.report import Progress, Reported, hand_back, report, task_log

HAND_BACK_SECONDS = 10.0
_LEAST_REPORT_SECONDS = 10.0
_LONGEST_REPORT_SECONDS = 300.0
# Characters of a result in the log; Conductor has all of it.
_LONGEST_RESULT = 300
_log = structlog.get_logger(__name__)


class Stopped(Enum):
    """An attempt that the supervisor ended before it had an outcome."""

    STALE = auto()
    HANDED_BACK = auto()


class Concluded(Protocol):
    """As much of an attempt under supervision as its report needs."""

    events: list[PhaseEvent]
    output: str
    # On the monotonic clock.
    started: float

    @property
    def was_renewed(self) -> bool:
        """Whether a request to renew its lease may still be under way."""
        ...


@dataclass
class WorkerContext:
    """Shared by all slots; every method may be called from any of their threads."""

    conductor: ConductorAttempts
    # A client of its own, with short timeouts and no retries: joining a heartbeat is bounded.
    heartbeat_client: ConductorAttempts
    lake: LakeFSControl | None
    root: Path
    domain: str | None
    metrics: WorkerMetrics
    # None when this worker uses no Spark.
    spark: SparkRuntime | None = None
    # Whether it also moves the large workspaces of file tasks.
    moves_on_spark: bool = False
    # An executor is replaced after so many attempts; 0 means never.
    executor_attempts: int = 0
    lost: threading.Event = field(default_factory=threading.Event)
    _busy: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def poll(self, task: str, count: int, *, wait_ms: int) -> list[Delivery]:
        """Ask for some tasks, under a worker id that is a claim token: used for this poll only.

        The queue that they came from says which task it is. The name of its definition may be
        another one, where a workflow says so.
        """
        token, asked_at = f"perago-{uuid.uuid4().hex}", time.monotonic()
        found = self.conductor.poll_batch(task, token, count, domain=self.domain, wait_ms=wait_ms)
        return [replace(delivery, task_type=task, asked_at=asked_at) for delivery in found]

    def find_waiting(self, tasks: Sequence[str]) -> list[str]:
        """Ask which queues hold anything, in one request."""
        return self.conductor.find_waiting(tasks, domain=self.domain)

    def poll_succeeded(self) -> None:
        self.metrics.poll_succeeded()

    def poll_failed(self, task: str) -> None:
        self.metrics.poll_failed(task)

    def heartbeat(self, delivery: Delivery, definition: TaskDefinition) -> Heartbeat:
        """Three beats within the lease, or as often as the publish budget says."""
        lease = delivery.response_timeout_seconds or 3 * LONGEST_HEARTBEAT_SECONDS
        budget = definition.controls.publish_budget
        wanted = budget.heartbeat_interval_seconds if budget else LONGEST_HEARTBEAT_SECONDS
        return Heartbeat(
            self.heartbeat_client,
            delivery.claim,
            min(lease / 3, wanted, LONGEST_HEARTBEAT_SECONDS),
            on_loss=partial(self.metrics.lease_lost, definition.name),
        )

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a slot as busy."""
        self._count_busy(+1)
        try:
            yield
        finally:
            self._count_busy(-1)

    def _count_busy(self, change: int) -> None:
        with self._counting:
            self._busy += change
            self.metrics.set_busy_slots(self._busy)

    def observe(self, task: str, event: PhaseEvent) -> None:
        """One event: a log line and the metrics."""
        log_phase(event)
        self.metrics.observe(task, event)

    def progress(self, delivery: Delivery) -> Progress:
        """Where a running attempt's partitions are told."""
        return Progress(partial(self.heartbeat_client.log, delivery.claim.attempt.task_id))

    def conclude(
        self,
        delivery: Delivery,
        definition: TaskDefinition,
        running: Concluded,
        ending: Outcome | Stopped,
    ) -> None:
        """Tell Conductor how an attempt ended, if it is still ours to tell. Never raises."""
        name = definition.name
        try:
            if isinstance(ending, Completed | Failed):
                self._report(delivery, definition, running, ending)
            elif ending is Stopped.HANDED_BACK:
                self.hand_back(delivery)
            else:
                self.metrics.stale(name)
                _log.warning("attempt_stale", reason="nothing is posted over another claim")
        except Exception as error:  # noqa: BLE001  a surprise while reporting ends no slot
            self.metrics.undelivered(name)
            self._log_loss("result_not_delivered", error, outcome=repr(ending))

    def hand_back(self, delivery: Delivery) -> None:
        """Put a claimed attempt back into the queue, so that a deploy burns no retry."""
        try:
            given = hand_back(self.conductor, delivery.claim, seconds=HAND_BACK_SECONDS)
        except BackendError as error:
            self._log_loss("hand_back_failed", error, task_id=delivery.claim.attempt.task_id)
            return
        self.metrics.handed_back(delivery.task_type)
        _log.info("attempt_handed_back", delivered=given.value)

    def spark_remote(self, execution_id: str, give_up: Callable[[], bool]) -> str | None:
        """Where an attempt connects to; the first one starts the server."""
        return self.spark.remote(give_up, execution_id) if self.spark is not None else None

    def spark_death(self, execution_id: str, seconds: float = 0.0) -> SparkServerDiedError | None:
        """Why the server is gone that an attempt uses, as soon as this worker knows."""
        return self.spark.death(execution_id, seconds) if self.spark is not None else None

    @property
    def spark_ui(self) -> str | None:
        """Where Spark shows its jobs, if this worker's Spark serves that."""
        return self.spark.ui if self.spark is not None else None

    def leave_spark(self, execution_id: str) -> None:
        """An attempt that used Spark is over."""
        if self.spark is not None:
            self.spark.leave(execution_id)

    def clear(
        self,
        execution: Execution,
        delivery: Delivery,
        *,
        used_spark: bool,
        evidence: bool,
    ) -> None:
        """End what a dead or stopped executor began on Spark, and remove what it left."""
        if self.spark is not None and used_spark:
            # First of all: it may still be writing to the staging branch or the folder.
            self.spark.interrupt(execution.id)
        clear(self.root, execution)
        workspace = delivery.payload.get("workspace")
        repository = workspace.get("repository") if isinstance(workspace, dict) else None
        if self.lake is None or evidence or not isinstance(repository, str):
            return
        try:
            self.lake.delete_branch(StagingBranch(repository, execution.staging_branch_name))
        except (BackendError, ValueError) as error:  # the ids may leave no room for a name
            _log.warning("staging_cleanup_failed", reason=str(error))

    def _log_loss(self, action: str, error: Exception, **details: str) -> None:
        """Log what did not reach Conductor, and let the worker end with exit code 1."""
        self.lost.set()
        _log.error(action, reason=describe(error), **details)

    def _report(
        self,
        delivery: Delivery,
        definition: TaskDefinition,
        running: Concluded,
        outcome: Outcome,
    ) -> None:
        name = definition.name
        try:
            delivered = report(
                self.conductor,
                delivery.claim,
                outcome,
                task_log(running.events, outcome, running.output),
                seconds=completion_seconds(delivery, definition),
                read_at=delivery.asked_at,
                read_back=running.was_renewed,
            )
        except BackendError as error:
            self.metrics.undelivered(name)
            self._log_loss("result_not_delivered", error, outcome=repr(outcome))
            return
        if delivered in {Reported.STALE, Reported.GONE}:
            self.metrics.stale(name)
        elif delivered is Reported.REFUSED:
            self.metrics.finished(name, failure_of(BackendRefusedError()))
        elif isinstance(outcome, Failed) and outcome.code == ExecutorDiedError.code:
            self.metrics.died(name)
        else:
            self.metrics.finished(name, outcome)
        _log_outcome(outcome, delivered, time.monotonic() - running.started)


def note_unreadable(metrics: WorkerMetrics, task: str, reason: str) -> None:
    """Log and count a claimed task that cannot be read: Conductor's response timeout ends it."""
    metrics.poll_failed(task)
    _log.warning("poll_failed", task=task, reason=reason)


def completion_seconds(delivery: Delivery, definition: TaskDefinition) -> float:
    """How long posting an outcome may take: as the publish budget says, or one lease."""
    budget = definition.controls.publish_budget
    if budget is not None:
        return budget.conductor_completion_timeout_seconds
    lease = delivery.response_timeout_seconds or _LONGEST_REPORT_SECONDS
    return min(max(lease, _LEAST_REPORT_SECONDS), _LONGEST_REPORT_SECONDS)


def _log_outcome(outcome: Outcome, delivered: Reported, seconds: float) -> None:
    """Say in one line how an attempt ended."""
    if isinstance(outcome, Completed):
        workspace = outcome.output.get("workspace") or {}
        _log.info(
            "attempt_completed",
            delivered=delivered.value,
            seconds=round(seconds, 3),
            commit=workspace.get("ref"),
            result=shorten_value(outcome.output.get("result"), _LONGEST_RESULT),
        )
        return
    _log.error(
        "attempt_failed",
        delivered=delivered.value,
        seconds=round(seconds, 3),
        status=outcome.disposition.value,
        reason=outcome.reason,
        code=outcome.code,
        hint=outcome.hint,
        trace=outcome.trace,
    )
