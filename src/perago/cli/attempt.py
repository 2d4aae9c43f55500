"""``perago attempt``: what is known about one attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from perago.operations.attempts import AttemptCommit, AttemptView, Traces
    from perago.settings import Settings

attempt_app = typer.Typer(rich_markup_mode=None, help="Look at one attempt.", no_args_is_help=True)

_LONGEST_RESULT = 500


@attempt_app.callback()
def _attempt() -> None:
    """Look at one attempt."""


@attempt_app.command()
def show(
    task_id: Annotated[
        str, typer.Argument(metavar="TASK_ID", help="The id of a task in Conductor.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show an attempt's timeline, fences, commits and result, or why it failed."""
    from contextlib import closing
    from dataclasses import replace

    from perago.conductor.inspection import ConductorInspection
    from perago.errors import BackendError, ConfigurationError
    from perago.operations.attempts import read_attempt
    from perago.settings import load_settings
    from perago.wiring.connections import conductor_connection

    settings = load_settings()
    with closing(ConductorInspection(conductor_connection(settings))) as conductor:
        found = read_attempt(conductor, task_id)
    try:
        found = replace(found, traces=_traces(settings, found))
    except (BackendError, ConfigurationError) as error:
        # What Conductor says is worth showing when LakeFS cannot be asked.
        output.warn(f"{error.code} the attempt's branch and commits are not shown: {error}")
        output.point_to_doctor_after(error)
    if as_json:
        output.emit_json(as_document(found))
        return
    for line in lines(found):
        output.say(line)


def _traces(settings: Settings, found: AttemptView) -> Traces | None:
    from contextlib import closing

    from perago.lakefs.control import LakeFSControl
    from perago.operations.attempts import find_traces
    from perago.wiring.connections import lakefs_connection

    if found.workspace is None:
        return None
    with closing(LakeFSControl(lakefs_connection(settings))) as lake:
        return find_traces(lake, found.task, found.workspace)


def lines(found: AttemptView) -> Iterator[str]:
    """An attempt for people."""
    task = found.task
    logical = task.logical
    loop = f", iteration {logical.iteration}" if logical.iteration else ""
    yield f"attempt {task.task_id}: {task.status}"
    yield f"  task      {task.task_name}, step {logical.reference_name}{loop}"
    yield f"  workflow  {logical.workflow_instance_id} {task.workflow_name}".rstrip()
    before = f", after attempt {task.retried_task_id}" if task.retried_task_id else ""
    yield f"  retry     {task.retry_count}{before}"
    if space := found.workspace:
        yield f"  input     {space.repository}, branch {space.branch} at {space.ref}"
    yield from _timeline(found)
    if found.fences:
        yield "fences"
    for fence in found.fences:
        mark = "passed " if fence.passed else "REFUSED"
        yield f"  {mark}  {fence.fence} fence ({fence.phase}): {fence.text}"
    yield from _in_lakefs(found.traces)
    yield from _outcome(found)


def _timeline(found: AttemptView) -> Iterator[str]:
    task = found.task
    yield "timeline"
    yield f"  {_moment(task.scheduled)}  scheduled"
    if task.started is not None:
        yield f"  {_moment(task.started)}  claimed as {task.claim}"
    for entry in found.log.others:
        yield from (f"  {_moment(entry.created)}  {line}" for line in entry.text.splitlines())
    for phase in found.log.phases:
        yield f"    {phase.name:<16} {phase.seconds:9.3f} s  {phase.text}".rstrip()
    for warning in found.log.warnings:
        yield f"    warning: {warning}"
    if task.ended is not None:
        yield f"  {_moment(task.ended)}  ended: {task.status}"
    if found.log.output:
        yield "output"
        yield from (f"  {line}" for line in found.log.output.splitlines())


def _in_lakefs(traces: Traces | None) -> Iterator[str]:
    if traces is None:
        return
    yield "in LakeFS"
    for commit in traces.commits:
        earlier = ", under an earlier claim" if commit.earlier_claim else ""
        yield f"  {commit.where:<9}  {commit.commit.id} [{commit.name}]{earlier}"
    for branch in traces.staging_branches:
        yield f"  staging branch {branch}"
    if not traces.commits and not traces.staging_branches:
        yield "  no commit, no staging branch"


def _outcome(found: AttemptView) -> Iterator[str]:
    from perago.text import shorten_value

    if found.failure is not None:
        yield "failure"
        code = f"{found.failure.code} " if found.failure.code else ""
        yield f"  {code}{found.failure.reason}"
        if found.failure.hint:
            yield f"  Try: {found.failure.hint}"
    elif "result" in found.task.output:
        yield "result"
        yield f"  {shorten_value(found.task.output['result'], _LONGEST_RESULT)}"


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return "-"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def as_document(found: AttemptView) -> dict[str, Any]:
    """An attempt for programs."""
    task, log, failure = found.task, found.log, found.failure
    return {
        "task_id": task.task_id,
        "task": task.task_name,
        "status": task.status,
        "workflow_id": task.logical.workflow_instance_id,
        "workflow": task.workflow_name,
        "reference_name": task.logical.reference_name,
        "iteration": task.logical.iteration,
        "retry_count": task.retry_count,
        "retried_task_id": task.retried_task_id,
        "claim": task.claim,
        "scheduled": _iso(task.scheduled),
        "claimed": _iso(task.started),
        "ended": _iso(task.ended),
        "input": task.input,
        "output": task.output,
        "phases": [
            {"phase": it.name, "seconds": it.seconds, "details": it.details} for it in log.phases
        ],
        "fences": [
            {"fence": it.fence, "phase": it.phase, "passed": it.passed, "verdict": it.text}
            for it in found.fences
        ],
        "warnings": list(log.warnings),
        "task_output": log.output,
        "log": [{"time": _iso(it.created), "text": it.text} for it in log.others],
        "failure": failure
        and {
            "reason": failure.reason,
            "code": failure.code,
            "hint": failure.hint,
            "trace": failure.trace,
        },
        "lakefs": found.traces
        and {
            "repository": found.traces.workspace.repository,
            "branch": found.traces.workspace.branch,
            "staging_branches": list(found.traces.staging_branches),
            "commits": [_commit_document(it) for it in found.traces.commits],
        },
    }


def _commit_document(found: AttemptCommit) -> dict[str, Any]:
    return {
        "where": found.where,
        "commit": found.commit.id,
        "parent": found.commit.first_parent,
        "name": found.name,
        "earlier_claim": found.earlier_claim,
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
