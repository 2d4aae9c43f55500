"""Run one attempt: the way in for every kind of task.

A file task's life cycle is in :mod:`perago.protocol.file_task`, a Spark task's in
:mod:`perago.protocol.spark_task`; what they share is in :mod:`perago.protocol.steps`. Whatever a
step raises becomes the attempt's outcome in one place, here.
"""

from __future__ import annotations

from typing import Any

from perago.protocol.events import Phases
from perago.protocol.file_task import run_file_task
from perago.protocol.identity import Execution
from perago.protocol.job import Job, Ports
from perago.protocol.outcome import Completed, Outcome, checked_output, failure_of
from perago.protocol.spark_task import run_spark_task
from perago.protocol.steps import Steps, call_body, check_result, validate_params
from perago.protocol.workspace import parse_input


def run_attempt(job: Job, execution: Execution, payload: dict[str, Any], ports: Ports) -> Outcome:
    """Run one attempt as a transaction. Never raises for what the attempt does."""
    phases = Phases(ports.events, ports.clock)
    try:
        if job.workspace is None:
            return Completed(_run_without_workspace(job, payload, ports, phases))
        steps = Steps.of(job, job.workspace, execution, ports, phases)
        run = run_spark_task if job.kind == "spark" else run_file_task
        return Completed(run(steps, payload))
    except Exception as error:  # noqa: BLE001  the one place where failures become outcomes
        return failure_of(error)


def _run_without_workspace(
    job: Job, payload: dict[str, Any], ports: Ports, phases: Phases
) -> dict[str, Any]:
    with phases("validate"):
        params = validate_params(job, parse_input(payload, with_workspace=False).params)
    with phases("body"):
        value = call_body(lambda: job.body(params))
    with phases("check_result"):
        executed = check_result(job, value, phases)
        return checked_output(ports, {"result": executed.result_payload})
