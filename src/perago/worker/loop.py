"""One worker in one process: poll, run, report, until asked to stop."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from perago.conductor.client import ConductorAttempts
from perago.errors import BackendError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.protocol.job import Job, Ports
from perago.protocol.outcome import Completed, Outcome
from perago.protocol.ports import Delivery
from perago.protocol.run import run_attempt
from perago.settings import Settings
from perago.tasks.definition import TaskDefinition
from perago.transfer.engine import Engine
from perago.transfer.workspaces import LocalWorkspaces
from perago.worker.bootstrap import (
    SystemClock,
    build_job,
    build_policy,
    conductor_connection,
    lakefs_connection,
)
from perago.worker.heartbeat import Heartbeat
from perago.worker.report import report

_POLL_MS = 1000
_PAUSE_AFTER_OUTAGE = 1.0
_REPORT_SECONDS = 60.0
_log = structlog.get_logger(__name__)


@dataclass
class Worker:
    """Polls its task types in turn and runs one attempt at a time."""

    jobs: dict[str, Job]
    conductor: ConductorAttempts
    ports: Ports
    stop: threading.Event

    def run(self) -> None:
        """Poll until ``stop`` is set; an attempt that has begun is finished and reported."""
        while not self.stop.is_set():
            for name in self.jobs:
                if self.stop.is_set():
                    return
                self._poll_once(name)

    def _poll_once(self, name: str) -> None:
        token = f"perago-{uuid.uuid4().hex}"
        try:
            delivery = self.conductor.poll(name, token, wait_ms=_POLL_MS // len(self.jobs))
        except BackendError as error:
            _log.warning("poll_failed", task=name, reason=str(error))
            self.stop.wait(_PAUSE_AFTER_OUTAGE)
            return
        if delivery is not None:
            self._handle(self.jobs[name], delivery)

    def _handle(self, job: Job, delivery: Delivery) -> None:
        execution = Execution(delivery.claim, uuid.uuid4().hex)
        attempt = execution.attempt
        with structlog.contextvars.bound_contextvars(
            task=job.name,
            workflow_id=attempt.workflow_instance_id,
            task_id=attempt.task_id,
            retry=attempt.retry_count,
            execution_id=execution.id,
        ):
            _log.info("attempt_claimed")
            with Heartbeat(self.conductor, delivery.claim, delivery.response_timeout_seconds):
                outcome = run_attempt(job, execution, delivery.payload, self.ports)
            self._report(delivery, outcome)

    def _report(self, delivery: Delivery, outcome: Outcome) -> None:
        logs = [] if isinstance(outcome, Completed) else [outcome.trace]
        try:
            delivered = report(
                self.conductor, delivery.claim, outcome, logs, seconds=_REPORT_SECONDS
            )
        except BackendError as error:
            _log.exception("result_not_delivered", reason=str(error), outcome=repr(outcome))
            return
        if isinstance(outcome, Completed):
            _log.info("attempt_completed", delivered=delivered.value)
        else:
            _log.error(
                "attempt_failed",
                delivered=delivered.value,
                status=outcome.disposition.value,
                reason=outcome.reason,
                code=outcome.code,
                hint=outcome.hint,
                trace=outcome.trace,
            )


def log_phase(event: PhaseEvent) -> None:
    """Turn a phase event into a log line."""
    details: dict[str, Any] = dict(event.details)
    if event.seconds is not None:
        details["seconds"] = round(event.seconds, 4)
    _log.info(event.action, phase=event.phase, **details)


def build_worker(
    definitions: Sequence[TaskDefinition], settings: Settings, stop: threading.Event
) -> Worker:
    """Wire a worker from its settings."""
    lakefs = lakefs_connection(settings)
    conductor = ConductorAttempts(conductor_connection(settings))
    engine = Engine(LakeFSObjects(lakefs), threads=settings.transfer_threads)
    ports = Ports(
        lake=LakeFSControl(lakefs),
        attempts=conductor,
        workspaces=LocalWorkspaces(settings.workspace_root, engine),
        clock=SystemClock(),
        events=log_phase,
        policy=build_policy(settings),
    )
    jobs = {definition.name: build_job(definition) for definition in definitions}
    return Worker(jobs, conductor, ports, stop)
