"""A slot: one thread of the supervisor that owns one executor and runs attempts through it.

It offers itself to the poller only while its executor is idle, so a claimed attempt never waits for
a place to run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog

from perago.errors import (
    AttemptTimeoutError,
    BackendError,
    BodyTimeoutError,
    ExecutorDiedError,
    InputError,
    PeragoError,
    SparkServerDiedError,
)
from perago.observability.logs import attempt_logs
from perago.observability.running import PhaseView, RunningView
from perago.protocol.events import PhaseEvent, describe_progress
from perago.protocol.identity import Execution
from perago.protocol.json_value import MAX_DEPTH, is_too_deep
from perago.protocol.outcome import Failed, Outcome, describe, failure_of, machine_error
from perago.protocol.ports import Delivery
from perago.tasks.definition import TaskDefinition
from perago.wiring.jobs import build_job
from perago.worker.channel import (
    Assignment,
    ChannelClosedError,
    Finished,
    MayProceed,
    OutputReported,
    PhaseReported,
    ProceedDecision,
    SparkAddress,
    SparkRequested,
    StateReported,
    StateRequested,
)
from perago.worker.context import Stopped, WorkerContext
from perago.worker.poller import Poller, SlotInbox, StopSignals
from perago.worker.process import ExecutorProcess, LiveExecutor
from perago.worker.report import Progress

_TICK_SECONDS = 0.1
# An executor may notice the end of Spark's server before the thread that watches the server does.
_DEATH_SECONDS = 2.0
# From the fence that lets an attempt publish until its outcome, it is not stopped from outside.
_PUBLISHING = frozenset({"second_fence", "publish"})
# Directories and branches are named after it; Conductor's own have 36 characters.
_LONGEST_TASK_ID = 200
_ENDS = frozenset({"phase_ended", "phase_failed"})
_MOST_EVENTS = 1000
_log = structlog.get_logger(__name__)


class Slot:
    """Takes attempts from the poller, assigns them to its executor, watches and reports."""

    def __init__(
        self,
        number: int,
        context: WorkerContext,
        definitions: Mapping[str, TaskDefinition],
        targets: Sequence[str],
        stops: StopSignals,
        poller: Poller,
    ) -> None:
        self.number = number
        self._context = context
        self._definitions = definitions
        self._stops = stops
        self._poller = poller
        self._inbox = SlotInbox()
        self._executor = LiveExecutor(number, context, targets, stops.draining)
        self.running: RunningAttempt | None = None

    @property
    def is_ready(self) -> bool:
        return self._executor.is_started

    def run(self) -> None:
        """Run the slot's thread until the worker drains."""
        try:
            while not self._stops.draining.is_set():
                if self._executor.find() is None:
                    continue
                self._poller.offer(self._inbox)
                delivery = self._inbox.take(self._stops.draining)
                if delivery is not None:
                    self._attempt(delivery)
        finally:
            self._executor.end()

    def _attempt(self, delivery: Delivery) -> None:
        execution = Execution(delivery.claim, uuid.uuid4().hex)
        definition = self._definitions[delivery.task_type]
        with attempt_logs(definition.name, execution), self._context.busy():
            _log.info("attempt_claimed", slot=self.number)
            heartbeat = self._context.heartbeat(delivery, definition)
            running = RunningAttempt(execution, definition, heartbeat)
            try:
                with heartbeat:
                    self.running = running
                    ending = self._run(running, delivery)
            except Exception as error:  # noqa: BLE001  it ends this attempt and not the worker
                _log.exception("slot_failed", slot=self.number)
                ending = self._fail_unexpectedly(error, running, delivery)
            if running.uses_spark:
                self._context.leave_spark(execution.id)
            # The heartbeat is joined: one in flight could overwrite a completion.
            self._context.conclude(delivery, definition, running, ending)
            self.running = None
            self._executor.remove_rest(execution)
        self._poller.note(delivery.task_type, ending)
        self._executor.note_attempt()

    def _run(self, running: RunningAttempt, delivery: Delivery) -> Outcome | Stopped:
        length = len(running.execution.attempt.task_id)
        if length > _LONGEST_TASK_ID:
            return failure_of(
                InputError(f"the task id has {length} characters, more than {_LONGEST_TASK_ID}")
            )
        if is_too_deep(delivery.payload):
            return failure_of(InputError(f"the input is nested more than {MAX_DEPTH} levels deep"))
        ending = self._run_once(running, delivery)
        if running.events or not isinstance(ending, Failed) or not _died(ending):
            return ending
        # Nothing of it had begun: the executor was dying already, which is not the attempt's fault.
        return self._run_once(running, delivery)

    def _run_once(self, running: RunningAttempt, delivery: Delivery) -> Outcome | Stopped:
        if not self._executor.is_alive:
            # To start one takes seconds.
            running.heartbeat.begin()
        executor = self._executor.find()
        if executor is None:
            return Stopped.HANDED_BACK
        progress = self._context.progress(delivery)
        executor.output.begin()
        try:
            return self._watch(executor, running, delivery, progress)
        finally:
            running.output = executor.output.finish()
            progress.flush()

    def _watch(
        self,
        executor: ExecutorProcess,
        running: RunningAttempt,
        delivery: Delivery,
        progress: Progress,
    ) -> Outcome | Stopped:
        """Watch one attempt until it has an outcome or must be stopped."""
        name, channel = running.definition.name, executor.channel
        try:
            channel.send(Assignment.of(name, running.execution, delivery.payload))
            while True:
                message = channel.receive(_TICK_SECONDS)
                running.keep_lease()
                if isinstance(message, PhaseReported):
                    event = running.record(message)
                    self._context.observe(name, event)
                    progress.note(event)
                elif isinstance(message, MayProceed):
                    channel.send(running.decide(self._stops, message.number))
                elif isinstance(message, StateRequested):
                    channel.send(running.state(self._stops, message.number))
                elif isinstance(message, SparkRequested):
                    channel.send(self._find_spark(running, message.number))
                elif isinstance(message, OutputReported):
                    executor.output.keep(message.text)
                elif isinstance(message, Finished) and message.is_of(running.execution):
                    self._executor.note_outcome()
                    return self._explain(message.outcome, running)
                elif message is None and not executor.is_alive():
                    return self._fail_for_dead_executor(executor, running, delivery)
                reason = running.reason_to_stop(self._stops)
                if reason is not None:
                    return self._stop(running, delivery, reason)
        except ChannelClosedError:
            return self._fail_for_dead_executor(executor, running, delivery)

    def _find_spark(self, running: RunningAttempt, number: int) -> SparkAddress:
        """Where Spark is. The first who asks starts it, which takes a while."""
        running.heartbeat.begin()
        running.uses_spark = True
        running.spark_death = partial(self._context.spark_death, running.execution.id)
        try:
            remote = self._context.spark_remote(
                running.execution.id, lambda: running.reason_to_stop(self._stops) is not None
            )
        except BackendError as error:
            return SparkAddress(number=number, why=str(error), hint=error.hint)
        running.spark_ui = self._context.spark_ui
        why = "" if remote else "the worker gives it none"
        return SparkAddress(number=number, remote=remote, why=why)

    def _explain(self, outcome: Outcome, running: RunningAttempt) -> Outcome:
        """Give a failure that was noticed in the executor first the reason that is known here."""
        if not isinstance(outcome, Failed) or outcome.code != SparkServerDiedError.code:
            return outcome
        death = self._context.spark_death(running.execution.id, _DEATH_SECONDS)
        return outcome if death is None else replace(failure_of(death), trace=outcome.trace)

    def _stop(
        self,
        running: RunningAttempt,
        delivery: Delivery,
        reason: Stopped | BodyTimeoutError | AttemptTimeoutError | SparkServerDiedError,
    ) -> Outcome | Stopped:
        _log.warning("attempt_stopped", phase=running.phase, reason=str(reason))
        self._executor.end()
        self._clear(running, delivery)
        return reason if isinstance(reason, Stopped) else failure_of(reason)

    def _fail_for_dead_executor(
        self, executor: ExecutorProcess, running: RunningAttempt, delivery: Delivery
    ) -> Outcome:
        running.heartbeat.begin()  # what follows may take seconds
        how = self._executor.note_death(executor)
        self._clear(running, delivery)
        return failure_of(ExecutorDiedError(f"the executor {how} during {running.phase}"))

    def _fail_unexpectedly(
        self, error: Exception, running: RunningAttempt, delivery: Delivery
    ) -> Outcome:
        """Fail the attempt for a bug here or a full machine; its executor may be in any state."""
        try:
            self._executor.end()
            self._clear(running, delivery)
        except Exception:  # noqa: BLE001  what is left is swept at the next start
            _log.exception("slot_failed", slot=self.number)
        why = f"{type(error).__name__}: {describe(error)}"
        bug = PeragoError(f"the supervisor failed during {running.phase}: {why}")
        return failure_of(machine_error(error) or bug)

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
    @property
    def has_renewed(self) -> bool: ...
    def begin(self) -> None: ...


def _died(outcome: Failed) -> bool:
    return outcome.code == ExecutorDiedError.code


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
    # Why the Spark server that it uses is gone; None while it is there.
    spark_death: Callable[[], SparkServerDiedError | None] = lambda: None
    # Where Spark shows its jobs.
    spark_ui: str | None = None
    # What it printed and logged, within bounds.
    output: str = ""
    started: float = field(default_factory=lambda: time.monotonic())

    @property
    def was_renewed(self) -> bool:
        """Whether a renewal of its lease may be under way: a heartbeat's, or one of a fence."""
        return self.heartbeat.has_renewed or self.definition.workspace is not None

    def keep_lease(self) -> None:
        """Begin to renew the lease, unless the attempt has only just started."""
        if time.monotonic() - self.started >= _TICK_SECONDS:
            self.heartbeat.begin()

    def record(self, reported: PhaseReported) -> PhaseEvent:
        """Keep an event, and what follows from it: the phase and the body's deadline."""
        event = PhaseEvent(reported.action, reported.phase, reported.seconds, reported.details)
        if reported.action != "partition_done":  # told while it runs, and not asked for later
            self.events.append(event)
            del self.events[:-_MOST_EVENTS]
        if reported.action == "phase_started":
            self.phase = reported.phase
        if reported.phase == "body":
            seconds = self.definition.controls.timeout.body_seconds
            begins = reported.action == "phase_started"
            self.body_deadline = time.monotonic() + seconds if begins and seconds else None
        return event

    def view(self, slot: int) -> RunningView:
        """Tell others what it does now; called from other threads than the slot's."""
        attempt = self.execution.attempt
        events = tuple(self.events)
        ended = (event for event in events if event.action in _ENDS)
        told = (event for event in reversed(events) if event.action == "task_progress")
        last = next(told, None)
        return RunningView(
            task=self.definition.name,
            task_id=attempt.task_id,
            workflow_id=attempt.workflow_instance_id,
            retry=attempt.retry_count,
            slot=slot,
            phase=self.phase,
            seconds=time.monotonic() - self.started,
            phases=tuple(
                PhaseView(
                    phase=event.phase,
                    seconds=event.seconds or 0.0,
                    error=event.details.get("error") if event.action == "phase_failed" else None,
                )
                for event in ended
            ),
            progress=describe_progress(last) if last is not None else None,
            spark_ui=self.spark_ui,
        )

    def decide(self, stops: StopSignals, number: int = 0) -> ProceedDecision:
        """Decide whether the attempt may proceed past a fence.

        Saying yes before publishing is a promise to wait for the outcome.
        """
        if self.heartbeat.is_lost:
            return ProceedDecision(number=number, go=False, why="its lease is lost")
        if stops.now.is_set():
            return ProceedDecision(number=number, go=False, why="the worker stops")
        if self._is_overdue():
            return ProceedDecision(number=number, go=False, why="its deadline is over")
        if self.phase in _PUBLISHING and self.publishing_since is None:
            self.publishing_since = time.monotonic()
        return ProceedDecision(number=number, go=True)

    def state(self, stops: StopSignals, number: int = 0) -> StateReported:
        """What a body may know: the time until its first deadline, and whether the worker stops."""
        seconds = self.definition.controls.timeout.attempt_seconds
        deadlines = [self.body_deadline, None if seconds is None else self.started + seconds]
        ends = min((deadline for deadline in deadlines if deadline is not None), default=None)
        left = None if ends is None else max(ends - time.monotonic(), 0.0)
        return StateReported(number=number, seconds_left=left, stopped=stops.draining.is_set())

    def reason_to_stop(
        self, stops: StopSignals
    ) -> Stopped | BodyTimeoutError | AttemptTimeoutError | SparkServerDiedError | None:
        """Why it must end now, or None."""
        now = time.monotonic()
        if self.publishing_since is not None:
            window = build_job(self.definition).publish_window_seconds
            return Stopped.STALE if now - self.publishing_since > window else None
        if self.heartbeat.is_lost:
            return Stopped.STALE
        if stops.now.is_set():
            return Stopped.HANDED_BACK
        if (death := self.spark_death()) is not None:
            return death
        if self.body_deadline is not None and now > self.body_deadline:
            seconds = self.definition.controls.timeout.body_seconds
            return BodyTimeoutError(f"the body ran longer than its deadline of {seconds:g} s")
        if self._is_overdue():
            seconds = self.definition.controls.timeout.attempt_seconds
            return AttemptTimeoutError(
                f"the attempt ran longer than its deadline of {seconds:g} s, in {self.phase}"
            )
        return None

    def _is_overdue(self) -> bool:
        seconds = self.definition.controls.timeout.attempt_seconds
        return seconds is not None and time.monotonic() - self.started > seconds
