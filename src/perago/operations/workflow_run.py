"""Start a workflow from where a branch is now."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pydantic import ValidationError

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.conductor.workflows import ConductorWorkflows
from perago.errors import (
    BackendRefusedError,
    BackendUnavailableError,
    ConfigurationError,
    LostReplyError,
    NotFoundError,
    UnknownOutcomeError,
)
from perago.operations.workflow_file import Json, WorkflowFile, worker_tasks
from perago.operations.workflow_follow import Tell
from perago.protocol.ports import Clock, Lake
from perago.protocol.workspace import WorkspaceInput, describe_validation

_POLL_SECONDS = 0.5
# How long TaskDefs are waited for: a worker that was started just now registers them.
_TASKDEF_SECONDS = 20.0
# How long a started workflow is looked for after its reply was lost.
_SEARCH_SECONDS = 15.0
_PIN = "Correct it, or leave it out of --input and give --repository and --branch: they pin HEAD."

# The keys of a workspace that leaves its ref to HEAD.
_UNPINNED = {"repository", "branch", "ref_type"}

# Where a repository's branch is now, as a workspace; without a branch, the default one.
Pin = Callable[[str, str | None], dict[str, str]]


def pin_input(workflow: WorkflowFile, given: Json, workspace: dict[str, str] | None) -> Json:
    """Build the workflow's input: what was given, and the workspace that was pinned.

    Raises ``ConfigurationError`` that names every input that is missing.
    """
    if workspace is not None and "workspace" in given:
        raise ConfigurationError(
            "the input has a workspace, and --repository asks for another",
            hint='Leave out either --repository or "workspace" in --input.',
        )
    full = given if workspace is None else {"workspace": workspace, **given}
    template = workflow.definition.get("inputTemplate")
    known = {*full, *(template if isinstance(template, dict) else ())}
    missing = [name for name in workflow.inputs() if name not in known]
    if missing:
        ways = ["--repository R [--branch B]"] if "workspace" in missing else []
        others = [f'"{name}": …' for name in missing if name != "workspace"]
        ways += [f"--input '{{{', '.join(others)}}}'"] if others else []
        raise ConfigurationError(
            f"workflow {workflow.name!r} needs the input {', '.join(missing)}",
            hint=f"Give {' and '.join(ways)}.",
        )
    return full


def pin_refs(workflow: WorkflowFile, given: Json, pin: Pin) -> Json:
    """Fill in the workspaces of the input that have a repository and no ref: HEAD of the branch.

    Only where a step takes a workspace: an object of the same shape may be a task's own parameter.
    """
    full: Json = copy.deepcopy(given)
    for path in workflow.workspace_inputs():
        for value in _values_at(full, path):
            repository, branch = value.get("repository"), value.get("branch")
            if not isinstance(repository, str) or not isinstance(branch, str | None):
                continue
            if set(value) <= _UNPINNED:
                value.update(pin(repository, branch))
    return full


def _values_at(value: Any, path: tuple[str, ...]) -> Iterator[Json]:
    if not isinstance(value, dict):
        return
    if not path:
        yield value
        return
    first, *rest = path
    for key in value if first == "*" else [first]:
        yield from _values_at(value.get(key), tuple(rest))


def given_workspace_warning(lake: Lake, given: Json) -> str | None:
    """Check a workspace that was given by hand; return what is doubtful about it.

    Raises an error for a workspace that no task can take.
    """
    value = given.get("workspace")
    if not isinstance(value, dict):
        return None
    try:
        workspace = WorkspaceInput.model_validate(value)
    except ValidationError as error:
        raise ConfigurationError(
            f"the workspace of --input is wrong: {describe_validation(error)}",
            hint=_PIN,
        ) from None
    try:
        head = lake.get_head(workspace.repository, workspace.branch)
        lake.get_commit(workspace.repository, workspace.ref)
    except NotFoundError as error:
        raise NotFoundError(f"the workspace of --input is wrong: {error}", hint=_PIN) from error
    if head.id == workspace.ref:
        return None
    return (
        f"ref {workspace.ref} is not HEAD of {workspace.branch!r}, which is at {head.id}: a step "
        "that publishes will fail with PRG-502. Give --repository and --branch to start from HEAD"
    )


def missing_taskdefs(taskdefs: ConductorTaskDefs, workflow: WorkflowFile) -> list[str]:
    """Return the tasks of a workflow that are not registered in Conductor."""
    return [
        name
        for name, step in worker_tasks(workflow.tasks).items()
        if "taskDefinition" not in step and taskdefs.get(name) is None
    ]


def await_taskdefs(
    taskdefs: ConductorTaskDefs, workflow: WorkflowFile, seconds: float, tell: Tell, clock: Clock
) -> None:
    """Wait a little for TaskDefs that a starting worker registers.

    Raises ``NotFoundError`` unless every task of the workflow is registered then.
    """
    ends = clock.monotonic() + min(seconds, _TASKDEF_SECONDS)
    told = False
    while missing := missing_taskdefs(taskdefs, workflow):
        names = ", ".join(map(repr, missing))
        if clock.monotonic() >= ends:
            raise NotFoundError(
                f"Conductor has no TaskDef {names}, which workflow {workflow.name!r} runs",
                hint="Run `perago start MODULE --register`, or `perago register MODULE`, first.",
            )
        if not told:
            tell(f"waiting for TaskDef {names}, which a worker may be registering")
            told = True
        clock.sleep(_POLL_SECONDS)


def register_definition(
    workflows: ConductorWorkflows, workflow: WorkflowFile
) -> Literal["created", "updated", "unchanged"]:
    """Register a definition and read it back."""
    defined = {"schemaVersion": 2, **workflow.definition, "version": workflow.version}
    before = workflows.get_definition(workflow.name, workflow.version)
    if before is not None and _holds(before, defined):
        return "unchanged"
    workflows.put_definition(defined)
    after = workflows.get_definition(workflow.name, workflow.version)
    if after is None or not _holds(after, defined):
        raise BackendRefusedError(
            f"Conductor answered and did not store workflow {workflow.name!r} as it was sent",
            hint="Check the definition with `perago workflow check FILE`, and who else registers.",
        )
    return "created" if before is None else "updated"


def _holds(stored: Any, sent: Any) -> bool:
    """Whether a stored value has all that was sent; Conductor adds defaults of its own."""
    if isinstance(sent, dict):
        return isinstance(stored, dict) and all(
            _holds(stored.get(key), value) for key, value in sent.items() if value is not None
        )
    if isinstance(sent, list):
        return (
            isinstance(stored, list) and len(stored) == len(sent) and all(map(_holds, stored, sent))
        )
    return bool(stored == sent)


def start(
    workflows: ConductorWorkflows,
    workflow: WorkflowFile,
    inputs: Json,
    *,
    registered: bool,
    clock: Clock,
) -> str:
    """Start an instance and return its id.

    What is not registered is sent along. Starting is never repeated: after a lost reply the
    instance is looked for by a correlation id of its own.
    """
    correlation = f"perago-{uuid.uuid4().hex}"
    request: Json = {
        "name": workflow.name,
        "version": workflow.version,
        "input": inputs,
        "correlationId": correlation,
    }
    if not registered:
        request["workflowDef"] = {"schemaVersion": 2, **workflow.definition}
    try:
        return workflows.start(request)
    except LostReplyError as lost:
        return _find(workflows, workflow.name, correlation, lost, clock)


def _find(
    workflows: ConductorWorkflows, name: str, correlation: str, lost: LostReplyError, clock: Clock
) -> str:
    ends = clock.monotonic() + _SEARCH_SECONDS
    while clock.monotonic() < ends:
        try:
            found = workflows.find(name, correlation)
        except BackendUnavailableError:
            found = []
        if found:
            return found[0]
        clock.sleep(_POLL_SECONDS)
    raise UnknownOutcomeError(
        f"the reply to the start of {name!r} was lost, and no workflow with correlation id "
        f"{correlation} is found: {lost}",
        hint="Look for the correlation id in Conductor before you start the workflow again.",
    ) from lost
