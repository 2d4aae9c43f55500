"""An executor: a process of its own that runs one attempt at a time for a supervisor.

It is a child of its warden (:mod:`perago.worker.warden`), which ends it and everything that bodies
start. When the supervisor's end of the line closes, or the thread that reads the line ends for any
other reason, the executor ends its whole process group; and since that takes a thread that gets its
turn, every fence also asks the supervisor first, so that an orphan never publishes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perago.conductor.client import ConductorAttempts
from perago.errors import BackendUnavailableError, StaleAttemptError
from perago.masking import hide_secret_variables
from perago.observability.logs import (
    configure_logs,
    keep_log_handler,
    log_phase,
    process_logs,
    restore_logs,
)
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Claim, Execution
from perago.protocol.job import Job, Ports
from perago.protocol.outcome import Outcome, describe, failure_of
from perago.protocol.ports import Attempts, AttemptSnapshot
from perago.protocol.run import run_attempt
from perago.settings import load_settings
from perago.signals import STOP_SIGNALS
from perago.spark.client import SparkClient
from perago.spark.files import SparkFiles
from perago.tasks.context import AttemptState, attempt_context
from perago.text import shorten
from perago.transfer.kept import KeptWorkspace
from perago.wiring.connections import conductor_connection
from perago.wiring.jobs import build_context, build_job
from perago.wiring.ports import SparkAccess, open_ports
from perago.wiring.tasks import load_tasks
from perago.worker import kernel
from perago.worker.channel import (
    ANSWER_SECONDS,
    Assignment,
    Channel,
    ChannelClosedError,
    Finished,
    MayProceed,
    Message,
    OutputReported,
    PhaseReported,
    ProceedDecision,
    Ready,
    SparkAddress,
    SparkRequested,
    StateReported,
    StateRequested,
)
from perago.worker.process_state import ProcessState, ignore_stop_signals

# What a supervisor answers to a question of an executor.
SupervisorReply = ProceedDecision | StateReported | SparkAddress

# The supervisor bounds the start of a server itself, and says so in time.
_SPARK_SECONDS = 300.0
_END_SECONDS = 5.0
_LONGEST_DETAIL = 2000
# Of the lines that a task logs, so much goes to its Conductor task log.
_MOST_REPORTED = 64_000


def end_group() -> None:
    """End this process and its group at once."""
    os.killpg(0, signal.SIGKILL)


class SupervisorLine:
    """The executor's side of the channel: a thread reads, the main thread works."""

    def __init__(self, channel: Channel, on_end: Callable[[], None] = end_group) -> None:
        self._channel = channel
        self._on_end = on_end
        self.assignments: queue.Queue[Assignment] = queue.Queue()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[SupervisorReply]] = {}
        threading.Thread(target=self._read, name="perago-line", daemon=True).start()

    def report_phase(self, event: PhaseEvent) -> None:
        details = {str(key): _plain(value) for key, value in event.details.items()}
        if self._channel.is_inherited:
            return log_phase(replace(event, details=details))
        return self._channel.send(
            PhaseReported(
                action=event.action, phase=event.phase, seconds=event.seconds, details=details
            )
        )

    def report_output(self, text: str) -> None:
        if self._channel.is_inherited:
            # The supervisor reads this as well. No stream: the fork may have left it locked.
            os.write(2, f"{text}\n".encode(errors="replace"))
            return
        self._channel.send(OutputReported(text=text))

    def ask_to_proceed(self) -> None:
        """Ask the supervisor whether this attempt may go on; no answer means no."""
        answer = self._ask(lambda number: MayProceed(number=number), ANSWER_SECONDS)
        if not isinstance(answer, ProceedDecision) or not answer.go:
            why = getattr(answer, "why", "")
            raise StaleAttemptError(f"the supervisor stopped this attempt: {why}")

    def find_spark(self) -> str:
        """Ask the supervisor for Spark's connection string; it starts a server if there is none."""
        answer = self._ask(lambda number: SparkRequested(number=number), _SPARK_SECONDS)
        if not isinstance(answer, SparkAddress) or answer.remote is None:
            why, hint = getattr(answer, "why", ""), getattr(answer, "hint", None)
            raise BackendUnavailableError(why, hint=hint)
        return answer.remote

    def ask_state(self) -> AttemptState:
        """Ask the supervisor for what a body wants to know of its attempt."""
        answer = self._ask(lambda number: StateRequested(number=number), ANSWER_SECONDS)
        if not isinstance(answer, StateReported):
            return AttemptState()
        return AttemptState(seconds_left=answer.seconds_left, stopped=answer.stopped)

    def _ask(self, question: Callable[[int], Message], seconds: float) -> SupervisorReply:
        """Ask under a fresh number: a late answer to an older question is not taken for this."""
        number = next(self._numbers)
        answers = self._answers[number] = queue.SimpleQueue()
        try:
            self._channel.send(question(number))
            return answers.get(timeout=seconds)
        except (ChannelClosedError, queue.Empty):
            raise StaleAttemptError("the supervisor of this executor is gone") from None
        finally:
            del self._answers[number]

    def _take_answer(self, answer: SupervisorReply) -> None:
        if waiting := self._answers.get(answer.number):
            waiting.put(answer)

    def _read(self) -> None:
        try:
            while True:
                message = self._channel.receive(None)
                if isinstance(message, Assignment):
                    self.assignments.put(message)
                elif isinstance(message, SupervisorReply):
                    self._take_answer(message)
        except ChannelClosedError:
            pass  # the supervisor has hung up, or is gone
        finally:
            # Without this thread nothing would notice that the supervisor is gone.
            self._on_end()


class BodyRemains:
    """What bodies leave behind in this process; what modules did on import is kept."""

    def __init__(self, line: SupervisorLine) -> None:
        self._line = line
        self._kept = kernel.children()
        self._state = ProcessState.take()

    def clear(self) -> None:
        """End the processes that a body left running, and undo what it changed of this one."""
        self._state.restore()
        if count := kernel.end_descendants(_END_SECONDS, keep=self._kept):
            self._line.report_phase(PhaseEvent("processes_ended", "body", None, {"count": count}))


class SupervisedAttempts:
    """Conductor, as seen from an executor that first asks its supervisor."""

    def __init__(self, attempts: Attempts, line: SupervisorLine) -> None:
        self._attempts = attempts
        self._line = line

    def read(self, task_id: str) -> AttemptSnapshot:
        self._line.ask_to_proceed()
        return self._attempts.read(task_id)

    def renew(self, claim: Claim) -> None:
        self._attempts.renew(claim)

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        return self._attempts.has_ended_before(workflow_instance_id)


class TaskLogHandler(logging.Handler):
    """Reports what a task and its libraries log, within bounds, for the Conductor task log."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report
        self._left = 0

    def begin(self) -> None:
        self._left = _MOST_REPORTED

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] == "perago" or self._left <= 0:
            return
        try:
            message = describe(record.getMessage())
            text = f"{record.levelname} {record.name}: {shorten(message, _LONGEST_DETAIL)}"
            self._left -= len(text)
            self._report(text)
        except Exception:  # noqa: BLE001  the line is in the worker's log
            self._left = 0


def main(
    descriptor: int, log: int, targets: list[str], *, moves_on_spark: bool, lacks: tuple[str, ...]
) -> None:
    """Serve assignments until the supervisor hangs up."""
    os.set_inheritable(descriptor, False)
    os.set_inheritable(log, False)
    ignore_stop_signals()
    os.register_at_fork(after_in_child=_restore_stop_signals)
    channel = Channel(socket.socket(fileno=descriptor))
    settings = load_settings()
    # Before the author's modules are imported, which run in this process.
    hide_secret_variables()
    configure_logs(settings, os.fdopen(log, "w", buffering=1, errors="backslashreplace"))
    line = SupervisorLine(channel)
    files = SparkFiles.of(settings)
    definitions = load_tasks(settings, targets)
    restore_logs()  # the author's modules may have configured others
    remains = BodyRemains(line)
    jobs = {item.name: _alone(build_job(item), remains) for item in definitions}
    spark = SparkClient(line.find_spark, targets, settings.spark_data_patterns, files)
    needs_lakefs = any(job.workspace is not None for job in jobs.values())
    attempts = ConductorAttempts(conductor_connection(settings))
    transfer = spark.transfer_session if moves_on_spark else None
    access = SparkAccess(spark.open, spark.end, transfer, spark.note)
    task_log = TaskLogHandler(line.report_output)
    keep_log_handler(task_log)
    kept, with_folders = KeptWorkspace(), {job.name for job in jobs.values() if job.kind == "file"}
    with (
        contextlib.suppress(ChannelClosedError),
        open_ports(
            settings,
            attempts=SupervisedAttempts(attempts, line),
            events=line.report_phase,
            with_lakefs=needs_lakefs,
            spark=access,
            kept=kept,
        ) as ports,
    ):
        channel.send(Ready(pid=os.getpid(), lacks=lacks))
        while True:
            assignment = _next_assignment(line, kept)
            task_log.begin()
            if assignment.task not in with_folders:
                kept.drop()  # the attempt takes nothing of it, and may run for hours
            outcome = _run(jobs, assignment, ports, spark, line)
            remains.clear()  # guardrails are an author's code too
            _flush()
            channel.send(_finished(assignment.execution, outcome))


def _next_assignment(line: SupervisorLine, kept: KeptWorkspace) -> Assignment:
    """Wait for an assignment; if none comes soon, drop what is kept for it."""
    while True:
        try:
            return line.assignments.get(timeout=kept.seconds_left())
        except queue.Empty:
            kept.drop()


def _run(
    jobs: dict[str, Job],
    assignment: Assignment,
    ports: Ports,
    spark: SparkClient,
    line: SupervisorLine,
) -> Outcome:
    execution = assignment.execution
    context = build_context(assignment.task, execution, ports.events, line.ask_state)
    try:
        with (
            process_logs(assignment.task, execution),
            spark.attempt(assignment.task, execution),
            attempt_context(context),
        ):
            return run_attempt(jobs[assignment.task], execution, assignment.payload, ports)
    except ChannelClosedError:
        raise
    except BaseException as error:  # noqa: BLE001  a body may raise KeyboardInterrupt
        return failure_of(error)


def _finished(execution: Execution, outcome: Outcome) -> Finished:
    try:
        return Finished.of(execution, outcome)
    except Exception as error:  # noqa: BLE001  an outcome that cannot be sent is a failure
        return Finished.of(execution, failure_of(error))


def _alone(job: Job, remains: BodyRemains) -> Job:
    """A job whose body leaves nothing behind that could meddle with the publication."""

    def body(*arguments: Any) -> Any:
        try:
            return job.body(*arguments)
        finally:
            remains.clear()

    return replace(job, body=body)


def _restore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _plain(value: Any) -> Any:
    """A detail of an event as data that any message can carry."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return shorten(describe(value), _LONGEST_DETAIL)
    try:
        text = json.dumps(value, default=describe, ensure_ascii=False)
        if len(text) > _LONGEST_DETAIL:
            return shorten(describe(text), _LONGEST_DETAIL)
        return json.loads(text.encode(errors="replace"))
    except Exception:  # noqa: BLE001  a detail must not end an attempt
        return shorten(describe(value), _LONGEST_DETAIL)
