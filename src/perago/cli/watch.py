"""``perago watch``: what runs now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output

if TYPE_CHECKING:
    from perago.conductor.inspection import TaskView
    from perago.operations.watching import Sighting


def watch(
    once: Annotated[bool, typer.Option("--once", help="Show what runs now, and end.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.5, help="Look so often.")
    ] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what runs now as one JSON object, and end.")
    ] = False,
) -> None:
    """Show attempts as they are claimed and end, until Ctrl-C."""
    import time
    from contextlib import closing

    from perago.conductor.inspection import ConductorInspection
    from perago.operations import watching
    from perago.settings import load_settings
    from perago.wiring.connections import conductor_connection

    with closing(ConductorInspection(conductor_connection(load_settings()))) as conductor:
        if once or as_json:
            running = watching.find_running(conductor)
            _show(running, as_json=as_json)
            return
        output.note("watching; Ctrl-C ends it")
        for sighting in watching.watch(conductor, lambda: time.sleep(interval)):
            output.say(line(sighting))


def _show(running: list[TaskView], *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        output.emit_json({"attempts": [as_document(task, now) for task in running]})
        return
    for task in running:
        output.say(f"{_age(task, now):8.1f} s  {describe(task)}")
    if not running:
        output.note("no attempt runs now")


def line(sighting: Sighting) -> str:
    """A sighting for people, with the time at which it happened."""
    from perago.protocol.outcome import bare_reason

    task = sighting.task
    if sighting.what == "ended":
        took = _age(task, task.ended) if task.ended else 0.0
        reason = f": {bare_reason(task.reason)}" if task.reason else ""
        return f"{_clock(task.ended)}  {task.status}  {describe(task)}, {took:.1f} s{reason}"
    moment = task.started if sighting.what == "claimed" else datetime.now(UTC)
    return f"{_clock(moment)}  {sighting.what}  {describe(task)}"


def describe(task: TaskView) -> str:
    """An attempt in one line."""
    logical = task.logical
    loop = f", iteration {logical.iteration}" if logical.iteration else ""
    return (
        f"{task.task_name}: step {logical.reference_name} of workflow "
        f"{logical.workflow_instance_id}{loop}, attempt {task.task_id}, retry {task.retry_count}"
    )


def as_document(task: TaskView, now: datetime) -> dict[str, Any]:
    """A running attempt for programs."""
    return {
        "task": task.task_name,
        "task_id": task.task_id,
        "workflow_id": task.logical.workflow_instance_id,
        "workflow": task.workflow_name,
        "reference_name": task.logical.reference_name,
        "iteration": task.logical.iteration,
        "retry_count": task.retry_count,
        "claim": task.claim,
        "claimed": task.started.isoformat() if task.started else None,
        "seconds": _age(task, now),
        "workspace": task.input.get("workspace"),
    }


def _age(task: TaskView, now: datetime) -> float:
    return max((now - task.started).total_seconds(), 0.0) if task.started else 0.0


def _clock(moment: datetime | None) -> str:
    return (moment or datetime.now(UTC)).strftime("%H:%M:%SZ")
