"""An executor: a process of its own that runs one attempt at a time for a supervisor.

It lives in its own process group, so that whatever a body starts ends with it. When the
supervisor's end of the line closes, the executor kills its whole group at once; and since that
takes a thread that gets its turn, every fence also asks the supervisor first, so that an orphan
never publishes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading

from perago.conductor.client import ConductorAttempts
from perago.errors import BackendUnavailableError, StaleAttemptError
from perago.observability.logs import configure_logs
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Claim
from perago.protocol.ports import Attempts, AttemptSnapshot
from perago.protocol.run import run_attempt
from perago.settings import load_settings
from perago.spark.client import SparkClient
from perago.tasks.discover import load_tasks
from perago.wiring.connections import conductor_connection
from perago.wiring.jobs import build_job
from perago.wiring.ports import SparkAccess, open_ports
from perago.worker.channel import (
    Assignment,
    Channel,
    ChannelClosedError,
    Finished,
    MayProceed,
    PhaseReported,
    ProceedDecision,
    Ready,
    SparkAddress,
    SparkRequested,
)

_ANSWER_SECONDS = 10.0
# The supervisor bounds the start of a server itself, and says so in time.
_SPARK_SECONDS = 300.0


class Line:
    """The executor's side of the channel: a thread reads, the main thread works."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.assignments: queue.Queue[Assignment] = queue.Queue()
        self._decisions: queue.Queue[ProceedDecision] = queue.Queue()
        self._spark: queue.Queue[SparkAddress] = queue.Queue()
        threading.Thread(target=self._read, name="perago-line", daemon=True).start()

    def report_phase(self, event: PhaseEvent) -> None:
        self._channel.send(
            PhaseReported(
                action=event.action,
                phase=event.phase,
                seconds=event.seconds,
                details=event.details,
            )
        )

    def ask_to_proceed(self) -> None:
        """Ask the supervisor whether this attempt may go on; no answer means no."""
        try:
            self._channel.send(MayProceed())
            answer = self._decisions.get(timeout=_ANSWER_SECONDS)
        except (ChannelClosedError, queue.Empty):
            raise StaleAttemptError("the supervisor of this executor is gone") from None
        if not answer.go:
            raise StaleAttemptError(f"the supervisor stopped this attempt: {answer.why}")

    def find_spark(self) -> str:
        """Ask the supervisor for Spark's connection string; it starts a server if there is none."""
        try:
            self._channel.send(SparkRequested())
            address = self._spark.get(timeout=_SPARK_SECONDS)
        except (ChannelClosedError, queue.Empty):
            raise StaleAttemptError("the supervisor of this executor is gone") from None
        if address.remote is None:
            raise BackendUnavailableError(address.why, hint=address.hint)
        return address.remote

    def _read(self) -> None:
        try:
            while True:
                message = self._channel.receive(None)
                if isinstance(message, Assignment):
                    self.assignments.put(message)
                elif isinstance(message, ProceedDecision):
                    self._decisions.put(message)
                elif isinstance(message, SparkAddress):
                    self._spark.put(message)
        except ChannelClosedError:
            os.killpg(0, signal.SIGKILL)


class SupervisedAttempts:
    """Conductor, as seen from an executor that first asks its supervisor."""

    def __init__(self, attempts: Attempts, line: Line) -> None:
        self._attempts = attempts
        self._line = line

    def read(self, task_id: str) -> AttemptSnapshot:
        self._line.ask_to_proceed()
        return self._attempts.read(task_id)

    def renew(self, claim: Claim) -> None:
        self._attempts.renew(claim)

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        return self._attempts.has_ended_before(workflow_instance_id)


def main(descriptor: int, targets: list[str], *, moves_on_spark: bool) -> None:
    """Serve assignments until the supervisor hangs up."""
    os.set_inheritable(descriptor, False)
    # A terminal's Ctrl-C and a service manager's SIGTERM are the supervisor's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    jobs = {definition.name: build_job(definition) for definition in load_tasks(targets)}
    line = Line(channel)
    spark = SparkClient(line.find_spark, targets)
    needs_lakefs = any(job.workspace is not None for job in jobs.values())
    settings = load_settings()
    configure_logs(settings)
    attempts = ConductorAttempts(conductor_connection(settings))
    transfer = spark.transfer_session if moves_on_spark else None
    access = SparkAccess(spark.open, spark.end, transfer)
    with open_ports(
        settings,
        attempts=SupervisedAttempts(attempts, line),
        events=line.report_phase,
        with_lakefs=needs_lakefs,
        spark=access,
    ) as ports:
        channel.send(Ready())
        while True:
            assignment = line.assignments.get()
            job, execution = jobs[assignment.task], assignment.execution
            with spark.attempt(execution):
                outcome = run_attempt(job, execution, assignment.payload, ports)
            channel.send(Finished(outcome=outcome))


if __name__ == "__main__":
    with contextlib.suppress(ChannelClosedError):
        main(int(sys.argv[1]), sys.argv[3:], moves_on_spark=sys.argv[2] == "spark")
