"""A slot: one thread of the supervisor that owns one executor and runs attempts through it.

It polls only while its executor is idle, so a claimed attempt never waits for a place to run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import structlog

from perago.errors import BackendError, BodyTimeoutError, ExecutorDiedError
from perago.observability.logs import attempt_logs
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.protocol.outcome import Outcome, failure_of
from perago.protocol.ports import Delivery
from perago.tasks.definition import TaskDefinition
from perago.worker.channel import (
    Assignment,
    ChannelClosedError,
    Finished,
    MayProceed,
    PhaseReported,
    ProceedDecision,
    SparkAddress,
    SparkRequested,
)
from perago.worker.context import Stopped, WorkerContext
from perago.worker.process import ExecutorProcess
from perago.worker.report import Progress

_POLL_MS = 1000
_TICK_SECONDS = 0.1
_PAUSE_AFTER_OUTAGE = 1.0
_LONGEST_PAUSE = 30.0
# A publish step is bounded by its own request timeouts; this is for one that hangs all the same.
_LONGEST_PUBLISH_SECONDS = 300.0
# From the fence that lets an attempt publish until its outcome, it is not stopped from outside.
_PUBLISHING = frozenset({"second_fence", "publish"})
_log = structlog.get_logger(__name__)


class Slot:
    """Polls, assigns to its executor, watches and reports, until the worker drains."""

    def __init__(
        self,
        number: int,
        context: WorkerContext,
        definitions: Mapping[str, TaskDefinition],
        targets: Sequence[str],
        stops: StopSignals,
    ) -> None:
        self._number = number
        self._context = context
        self._definitions = definitions
        self._targets = targets
        self._stops = stops
        self._turn = number
        self._executor: ExecutorProcess | None = None
        self._deaths = 0
        self.running: RunningAttempt | None = None

    @property
    def is_ready(self) -> bool:
        return self._executor is not None

    def run(self) -> None:
        """The slot's thread."""
        try:
            while not self._stops.draining.is_set():
                executor = self._executor or self._start_executor()
                if executor is None:
                    continue
                delivery = self._poll()
                if delivery is not None:
                    self._attempt(executor, delivery)
        finally:
            if self._executor is not None:
                self._executor.kill()

    def _start_executor(self) -> ExecutorProcess | None:
        """Start one, after a pause that grows with each death in a row."""
        if self._deaths:
            self._context.metrics.executor_restarted()
        if self._stops.draining.wait(pause_after(self._deaths)):
            return None
        executor = ExecutorProcess(self._targets, moves_on_spark=self._context.moves_on_spark)
        try:
            while not executor.is_ready(_TICK_SECONDS):
                if self._stops.draining.is_set():
                    executor.kill()
                    return None
        except ChannelClosedError as error:
            self._deaths += 1
            _log.error(
                "executor_not_started", slot=self._number, reason=str(error), how=executor.reap()
            )
            return None
        _log.info("executor_started", slot=self._number, pid=executor.pid)
        self._executor = executor
        return executor

    def _poll(self) -> Delivery | None:
        """One round over the task types, and a long poll for one of them if all are empty.

        The round begins one type further each time: a busy type cannot starve the others, and
        looking into an empty queue takes milliseconds.
        """
        names = list(self._definitions)
        self._turn += 1
        start = self._turn % len(names)
        try:
            for name in names[start:] + names[:start]:
                if delivery := self._context.poll(name, wait_ms=0):
                    return self._unless_draining(delivery)
            delivery = self._context.poll(names[start], wait_ms=max(_POLL_MS // len(names), 100))
        except BackendError as error:
            self._context.metrics.poll_failed(names[start])
            _log.warning("poll_failed", task=names[start], reason=str(error))
            self._stops.draining.wait(_PAUSE_AFTER_OUTAGE)
            return None
        return self._unless_draining(delivery) if delivery else None

    def _unless_draining(self, delivery: Delivery) -> Delivery | None:
        """What a poll claimed while the stop came goes back: nothing of it has run yet."""
        if not self._stops.draining.is_set():
            return delivery
        self._context.hand_back(delivery)
        return None

    def _attempt(self, executor: ExecutorProcess, delivery: Delivery) -> None:
        execution = Execution(delivery.claim, uuid.uuid4().hex)
        definition = self._definitions[delivery.task_type]
        with (
            attempt_logs(definition.name, execution),
            self._context.busy(),
        ):
            _log.info("attempt_claimed", slot=self._number)
            with self._context.heartbeat(delivery, definition) as heartbeat:
                self.running = running = RunningAttempt(execution, definition, heartbeat)
                progress = self._context.progress(delivery)
                ending = self._watch(executor, running, delivery, progress)
                progress.flush()
            # The heartbeat is joined: one in flight could overwrite a completion.
            self._context.conclude(delivery, definition, running.events, ending)
            self.running = None

    def _watch(
        self,
        executor: ExecutorProcess,
        running: RunningAttempt,
        delivery: Delivery,
        progress: Progress,
    ) -> Outcome | Stopped:
        """Watch one attempt until it has an outcome or must be stopped."""
        name, channel = running.definition.name, executor.channel
        assignment = Assignment(task=name, execution=running.execution, payload=delivery.payload)
        try:
            channel.send(assignment)
            while True:
                message = channel.receive(_TICK_SECONDS)
                if isinstance(message, PhaseReported):
                    event = running.record(message)
                    self._context.observe(name, event)
                    progress.note(event)
                elif isinstance(message, MayProceed):
                    channel.send(running.decide(self._stops))
                elif isinstance(message, SparkRequested):
                    channel.send(self._find_spark(running))
                elif isinstance(message, Finished):
                    self._deaths = 0
                    return message.outcome
                elif message is None and not executor.is_alive():
                    return self._fail_for_dead_executor(executor, running, delivery)
                reason = running.reason_to_stop(self._stops)
                if reason is not None:
                    return self._stop(executor, running, delivery, reason)
        except ChannelClosedError:
            return self._fail_for_dead_executor(executor, running, delivery)

    def _find_spark(self, running: RunningAttempt) -> SparkAddress:
        """Where Spark is. The first who asks starts it, which takes a while."""
        running.uses_spark = True
        try:
            remote = self._context.spark_remote(
                lambda: running.reason_to_stop(self._stops) is not None
            )
        except BackendError as error:
            return SparkAddress(why=str(error), hint=error.hint)
        return SparkAddress(remote=remote, why="" if remote else "the worker gives it none")

    def _stop(
        self,
        executor: ExecutorProcess,
        running: RunningAttempt,
        delivery: Delivery,
        reason: Stopped | BodyTimeoutError,
    ) -> Outcome | Stopped:
        _log.warning("attempt_stopped", phase=running.phase, reason=str(reason))
        executor.kill()
        self._executor = None
        self._clear(running, delivery)
        return reason if isinstance(reason, Stopped) else failure_of(reason)

    def _fail_for_dead_executor(
        self, executor: ExecutorProcess, running: RunningAttempt, delivery: Delivery
    ) -> Outcome:
        how = executor.reap()
        self._executor = None
        self._deaths += 1
        self._clear(running, delivery)
        return failure_of(ExecutorDiedError(f"the executor {how} during {running.phase}"))

    def _clear(self, running: RunningAttempt, delivery: Delivery) -> None:
        self._context.clear(
            running.execution,
            delivery,
            used_spark=running.uses_spark,
            evidence=running.publishing_since is not None,
        )


class LeaseState(Protocol):
    """As much of a heartbeat as decisions need."""

    @property
    def is_lost(self) -> bool: ...


def pause_after(deaths: int) -> float:
    """Seconds to wait before the next executor, after so many deaths in a row."""
    return min(2.0 ** (deaths - 2), _LONGEST_PAUSE) if deaths else 0.0


@dataclass(frozen=True, slots=True)
class StopSignals:
    """How a worker is asked to stop: first no new work, then no work at all."""

    draining: Event = field(default_factory=Event)
    now: Event = field(default_factory=Event)


@dataclass
class RunningAttempt:
    """One attempt under supervision."""

    execution: Execution
    definition: TaskDefinition
    heartbeat: LeaseState
    phase: str = "attempt"
    events: list[PhaseEvent] = field(default_factory=list)
    publishing_since: float | None = None
    body_deadline: float | None = None
    uses_spark: bool = False

    def record(self, reported: PhaseReported) -> PhaseEvent:
        """Keep an event, and what follows from it: the phase and the body's deadline."""
        event = PhaseEvent(reported.action, reported.phase, reported.seconds, reported.details)
        self.events.append(event)
        if reported.action == "phase_started":
            self.phase = reported.phase
        if reported.phase == "body":
            seconds = self.definition.controls.timeout.body_seconds
            begins = reported.action == "phase_started"
            self.body_deadline = time.monotonic() + seconds if begins and seconds else None
        return event

    def decide(self, stops: StopSignals) -> ProceedDecision:
        """Decide whether the attempt may proceed past a fence.

        Saying yes before publishing is a promise to wait for the outcome.
        """
        if self.heartbeat.is_lost:
            return ProceedDecision(go=False, why="its lease is lost")
        if stops.now.is_set():
            return ProceedDecision(go=False, why="the worker stops")
        if self.phase in _PUBLISHING and self.publishing_since is None:
            self.publishing_since = time.monotonic()
        return ProceedDecision(go=True)

    def reason_to_stop(self, stops: StopSignals) -> Stopped | BodyTimeoutError | None:
        """Why it must end now, or None."""
        now = time.monotonic()
        if self.publishing_since is not None:
            too_long = now - self.publishing_since > _LONGEST_PUBLISH_SECONDS
            return Stopped.STALE if too_long else None
        if self.heartbeat.is_lost:
            return Stopped.STALE
        if stops.now.is_set():
            return Stopped.HANDED_BACK
        if self.body_deadline is not None and now > self.body_deadline:
            seconds = self.definition.controls.timeout.body_seconds
            return BodyTimeoutError(f"the body ran longer than its deadline of {seconds:g} s")
        return None
