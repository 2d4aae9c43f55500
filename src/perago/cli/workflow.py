"""``perago workflow``: check a workflow, run it, and follow it to its end."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.completion import complete_module
from perago.cli.json_option import AsJson, read_json_object

if TYPE_CHECKING:
    from perago.conductor.workflows import ConductorWorkflows, WorkflowRun
    from perago.operations.workflow_file import WorkflowFile
    from perago.settings import Settings

workflow_app = typer.Typer(
    rich_markup_mode=None,
    help="Check a workflow definition, run it, and follow it to its end.",
    no_args_is_help=True,
)

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A workflow as JSON."),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.0, help="How long to wait for the end."),
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Also show each attempt's log: phases and output."),
]
_HOUR = 3600.0


@workflow_app.command()
def check(
    file: File,
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE]...",
            help="The modules with the workflow's tasks.",
            autocompletion=complete_module,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find mistakes in the input mapping of a workflow before it runs; exit code 2 if any.

    Without modules, only what the file alone shows is checked.
    """
    from dataclasses import asdict

    from perago.operations.workflow_check import check_workflow
    from perago.operations.workflow_file import read_workflow
    from perago.settings import load_settings
    from perago.wiring.tasks import load_tasks

    workflow = read_workflow(file)
    tasks = load_tasks(load_settings(), modules) if modules else None
    findings = check_workflow(workflow, tasks)
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        output.emit_json(
            {
                "workflow": workflow.name,
                "version": workflow.version,
                "input": sorted(workflow.inputs()),
                "findings": [asdict(finding) for finding in findings],
                "exit_code": 2 if errors else 0,
            }
        )
    else:
        for finding in findings:
            output.say(str(finding))
        if not modules:
            output.note("no MODULE given: tasks, params and results were not checked")
        if errors:
            output.say(f"{errors} {'problem' if errors == 1 else 'problems'} to correct")
        else:
            names = ", ".join(sorted(workflow.inputs())) or "nothing"
            output.say(f"{workflow.name}: ok; its input is {names}")
    raise typer.Exit(2 if errors else 0)


@workflow_app.command()
def run(
    file: File,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="R", help="Pin this repository's branch as input."),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="B", help="Default: the repository's default branch."),
    ] = None,
    inputs: Annotated[
        str, typer.Option("--input", metavar="JSON|@FILE", help="The rest of the input.")
    ] = "{}",
    register: Annotated[
        bool, typer.Option("--register", help="Register the definition in Conductor first.")
    ] = False,
    timeout: Timeout = _HOUR,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Start a workflow from where a branch is now, and follow it to its end.

    With --repository, the input's `workspace` is the branch at its HEAD. So is every workspace of
    the input that has a repository and no ref. A workflow that failed is run again from there by
    the same command. Ctrl-C leaves the workflow running.
    """
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.operations.workflow_file import read_workflow
    from perago.operations.workflow_run import await_taskdefs, pin_input, pin_refs, start
    from perago.settings import load_settings
    from perago.wiring.connections import conductor_connection
    from perago.wiring.ports import SystemClock

    if branch is not None and repository is None:
        raise typer.BadParameter("--branch needs --repository")
    workflow, given, settings = (
        read_workflow(file),
        read_json_object("--input", inputs),
        load_settings(),
    )
    conductor = conductor_connection(settings)
    with ExitStack() as held:
        workflows = held.enter_context(_workflows(settings))
        given = pin_refs(workflow, given, partial(_pin, settings))
        workspace = _pinned(settings, repository, branch, given)
        full = pin_input(workflow, given, workspace)
        clock = SystemClock()
        with closing(ConductorTaskDefs(conductor)) as taskdefs:
            await_taskdefs(taskdefs, workflow, timeout, output.note, clock)
        if register:
            _register(workflows, workflow)
        workflow_id = start(workflows, workflow, full, registered=register, clock=clock)
        output.note(f"workflow {workflow_id}: {workflow.name} version {workflow.version} started")
        if workspace is not None:
            output.note(
                f"input {workspace['repository']}@{workspace['branch']} at {workspace['ref']}"
            )
        _follow(settings, workflows, workflow_id, timeout, verbose=verbose, as_json=as_json)


@workflow_app.command()
def follow(
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW_ID")],
    timeout: Timeout = _HOUR,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Follow a workflow that was started before to its end; Ctrl-C leaves it running."""
    from perago.settings import load_settings

    settings = load_settings()
    with _workflows(settings) as workflows:
        _follow(settings, workflows, workflow_id, timeout, verbose=verbose, as_json=as_json)


def _workflows(settings: Settings) -> closing[ConductorWorkflows]:
    from perago.conductor.workflows import ConductorWorkflows
    from perago.wiring.connections import conductor_connection

    return closing(ConductorWorkflows(conductor_connection(settings)))


def _pinned(
    settings: Settings, repository: str | None, branch: str | None, given: dict[str, Any]
) -> dict[str, str] | None:
    """Return the workspace at HEAD, or None after a look at one that was given by hand."""
    from perago.lakefs.control import LakeFSControl
    from perago.operations.locations import Location, parse_location
    from perago.operations.workflow_run import given_workspace_warning
    from perago.wiring.connections import lakefs_connection

    if repository is None:
        if "workspace" in given:
            with closing(LakeFSControl(lakefs_connection(settings))) as lake:
                if warning := given_workspace_warning(lake, given):
                    output.warn(warning)
        return None
    name = parse_location(repository)
    if name != Location(name.repository):
        raise typer.BadParameter(f"--repository takes a name alone, such as {name.repository!r}")
    return _pin(settings, name.repository, branch)


def _pin(settings: Settings, repository: str, branch: str | None) -> dict[str, str]:
    from perago.lakefs.repositories import LakeFSRepositories
    from perago.operations.locations import Location, pin
    from perago.wiring.connections import lakefs_connection

    with closing(LakeFSRepositories(lakefs_connection(settings))) as repositories:
        pinned = pin(repositories, Location(repository, branch))
    return {
        "repository": pinned.location.repository,
        "branch": str(pinned.location.ref),
        "ref_type": "commit",
        "ref": pinned.commit,
    }


def _register(workflows: ConductorWorkflows, workflow: WorkflowFile) -> None:
    from perago.operations.workflow_run import register_definition

    action = register_definition(workflows, workflow)
    output.note(f"workflow {workflow.name!r} version {workflow.version}: {action}")


def _follow(
    settings: Settings,
    workflows: ConductorWorkflows,
    workflow_id: str,
    timeout: float,
    *,
    verbose: bool,
    as_json: bool,
) -> None:
    from perago.conductor.inspection import ConductorInspection
    from perago.operations.workflow_follow import Follower, exit_code_of
    from perago.wiring.connections import conductor_connection
    from perago.wiring.ports import SystemClock

    again = f"`perago workflow follow {workflow_id}`"
    with closing(ConductorInspection(conductor_connection(settings))) as inspection:
        read_log = inspection.log if verbose else None
        follower = Follower(workflows, workflow_id, output.note, SystemClock(), read_log)
        try:
            done = follower.follow(timeout)
        except (KeyboardInterrupt, SystemExit):
            output.note(f"the workflow goes on without this command; follow it again: {again}")
            raise
    if as_json:
        output.emit_json(_run_json(done))
    else:
        _show(done)
    if not done.is_over:
        output.note(f"not over after {timeout:.0f} s; it goes on. Follow it again: {again}")
        raise typer.Exit(1)
    raise typer.Exit(exit_code_of(done))


def _show(done: WorkflowRun) -> None:
    from perago.errors import INFRASTRUCTURE
    from perago.operations.workflow_follow import error_of, failed_attempt, last_workspace
    from perago.protocol.outcome import bare_reason, told_hint

    seconds = f" in {(done.ended_ms - done.started_ms) / 1000:.1f} s" if done.ended_ms else ""
    left = last_workspace(done)
    where = f": {left.get('repository')}@{left.get('branch')} at {left.get('ref')}" if left else ""
    output.say(f"{done.status}{seconds}{where}")
    for step in done.attempts:
        if step.status == "COMPLETED" and "result" in step.output:
            output.say(f"  {step.reference}: {json.dumps(step.output['result'])}")
    if done.status == "COMPLETED" or not done.is_over:
        return
    failed, kind = failed_attempt(done), error_of(done)
    told = (failed.reason if failed is not None else None) or done.reason or ""
    output.note(bare_reason(told) or "Conductor gives no reason")
    if kind is not None:
        output.note(f"{kind.code}, try: {told_hint(told) or kind.hint}")
        if issubclass(kind, INFRASTRUCTURE):
            output.point_to_doctor()
    output.note("To run it again from the branch's HEAD, give the same command.")


def _run_json(done: WorkflowRun) -> dict[str, Any]:
    from perago.operations.workflow_follow import error_of, exit_code_of, last_workspace, seconds_of

    kind = error_of(done) if done.is_over and done.status != "COMPLETED" else None
    return {
        "workflow_id": done.workflow_id,
        "name": done.name,
        "version": done.version,
        "status": done.status,
        "seconds": (done.ended_ms - done.started_ms) / 1000 if done.ended_ms else None,
        "workspace": last_workspace(done),
        "output": done.output,
        "reason": done.reason,
        "code": kind.code if kind else None,
        "steps": [
            {
                "reference": step.reference,
                "task": step.task,
                "task_id": step.task_id,
                "status": step.status,
                "attempt": step.retry_count + 1,
                "seconds": seconds_of(step),
                "output": step.output,
                "reason": step.reason,
            }
            for step in done.attempts
        ],
        "exit_code": exit_code_of(done) if done.is_over else 1,
    }
