"""Start a workflow from where a branch is now, and follow it to its end."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.conductor.workflows import ConductorWorkflows, Step, WorkflowRun
from perago.errors import (
    BackendRefusedError,
    BackendUnavailableError,
    ConfigurationError,
    LostReplyError,
    NotFoundError,
    PeragoError,
    UnknownOutcomeError,
)
from perago.operations.workflow_file import Json, WorkflowFile, worker_tasks
from perago.protocol.ports import Clock, Lake
from perago.protocol.workspace import WorkspaceInput, describe_validation
from perago.text import shorten_line

_POLL_SECONDS = 0.5
# How long TaskDefs are waited for: a worker that was started just now registers them.
_TASKDEF_SECONDS = 20.0
# How long a started workflow is looked for after its reply was lost.
_SEARCH_SECONDS = 15.0
# How long Conductor may be away before following it is given up; the workflow goes on.
_OUTAGE_SECONDS = 60.0
# After so long without a worker, and then every so often, that is said.
_UNCLAIMED_SECONDS = 5.0
_UNCLAIMED_AGAIN_SECONDS = 60.0
_NAME = re.compile(r"\bPRG-\d{3}\b|\b[A-Z]\w+(?=:)", re.ASCII)
_LONGEST_REASON = 500

Tell = Callable[[str], None]


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
            hint="Give --repository and --branch in its place: they pin HEAD.",
        ) from None
    head = lake.get_head(workspace.repository, workspace.branch)
    lake.get_commit(workspace.repository, workspace.ref)
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


@dataclass(slots=True)
class Follower:
    """Follows one workflow and tells what happens, one line per change of a step."""

    workflows: ConductorWorkflows
    workflow_id: str
    tell: Tell
    clock: Clock
    # Whether the log of each attempt that ended is told, too: its phases, output and warnings.
    with_logs: bool = False
    _seen: dict[str, str] = field(default_factory=dict)
    _waiting: dict[str, float] = field(default_factory=dict)
    _status: str = "RUNNING"

    def follow(self, seconds: float) -> WorkflowRun:
        """Read until the workflow is over or ``seconds`` have passed; the last that was read."""
        ends = self.clock.monotonic() + seconds
        while True:
            run = self._read(ends)
            for line in self._news(run):
                self.tell(line)
            if run.is_over or self.clock.monotonic() >= ends:
                return run
            self.clock.sleep(min(_POLL_SECONDS, max(ends - self.clock.monotonic(), 0.0)))

    def _read(self, ends: float) -> WorkflowRun:
        """Read once; an outage is waited out for a time."""
        lost_at = self.clock.monotonic()
        while True:
            try:
                return self.workflows.read(self.workflow_id)
            except BackendUnavailableError as error:
                now = self.clock.monotonic()
                if now >= min(ends, lost_at + _OUTAGE_SECONDS):
                    error.hint = (
                        f"The workflow goes on without this command. Follow it again: "
                        f"`perago workflow follow {self.workflow_id}`."
                    )
                    raise
                self.clock.sleep(_POLL_SECONDS)

    def _news(self, run: WorkflowRun) -> Iterator[str]:
        for step in run.steps:
            if self._seen.get(step.task_id) != step.status:
                self._seen[step.task_id] = step.status
                if step.kind not in _SILENT or step.status not in _DONE:
                    yield describe_step(step)
                if self.with_logs and step.is_for_worker and step.ended_ms:
                    yield from self._log(step)
            if step.status == "SCHEDULED" and step.is_for_worker and not run.is_over:
                yield from self._unclaimed(step)
        if run.status != self._status:
            self._status = run.status
            if not run.is_over:
                yield f"the workflow is {run.status}"

    def _log(self, step: Step) -> Iterator[str]:
        try:
            lines = self.workflows.read_log(step.task_id)
        except PeragoError as error:
            lines = [str(error)]
        yield from (f"  {line}" for line in lines)

    def _unclaimed(self, step: Step) -> Iterator[str]:
        """Say that no worker takes a step, when that is so for a while."""
        now = self.clock.monotonic()
        due = self._waiting.setdefault(step.task_id, now + _UNCLAIMED_SECONDS + step.delay_seconds)
        if now >= due:
            self._waiting[step.task_id] = now + _UNCLAIMED_AGAIN_SECONDS
            yield (
                f"{step.reference}: no worker has taken it; {self._polled(step.task)}. Start one: "
                f"`perago start MODULE`, with the module of task {step.task!r}"
            )

    def _polled(self, task: str) -> str:
        try:
            last = self.workflows.last_poll_ms(task)
        except PeragoError:
            return "who polls for it is not known"
        if last is None:
            return f"none has ever polled for {task!r}"
        ago = max(time.time() - last / 1000, 0.0)
        return f"the last poll for {task!r} was {ago:.0f} s ago"


_DONE = {"COMPLETED", "IN_PROGRESS", "SCHEDULED"}
# Conductor's own steps are over at once, and say nothing unless they fail.
_SILENT = {
    *("FORK", "FORK_JOIN", "JOIN", "SWITCH", "DECISION", "EXCLUSIVE_JOIN", "SET_VARIABLE"),
    *("INLINE", "LAMBDA", "JSON_JQ_TRANSFORM", "NOOP"),
}


def describe_step(step: Step) -> str:
    """One line on where an attempt of a step is: status, attempt, seconds, ref and reason."""
    words = [f"{step.reference}: {step.status.lower().replace('_', ' ')}"]
    if step.retry_count:
        words.append(f"attempt {step.retry_count + 1}")
    if step.status == "SCHEDULED" and step.delay_seconds:
        words.append(f"in {step.delay_seconds} s")
    if step.ended_ms and step.started_ms:
        words.append(f"{seconds_of(step):.1f} s")
    if ref := ref_of(step):
        words.append(f"ref {ref}")
    line = ", ".join(words)
    return f"{line}: {shorten_line(step.reason, _LONGEST_REASON)}" if step.reason else line


def seconds_of(step: Step) -> float:
    """How long an attempt ran, by Conductor's clock; 0 for one that did not end."""
    return max(step.ended_ms - step.started_ms, 0) / 1000 if step.started_ms else 0.0


def ref_of(step: Step) -> str | None:
    """Return the commit in a step's output workspace, if it has one."""
    workspace = step.output.get("workspace")
    ref = workspace.get("ref") if isinstance(workspace, dict) else None
    return ref if isinstance(ref, str) else None


def last_workspace(run: WorkflowRun) -> dict[str, Any] | None:
    """Return the workspace that the workflow left: the output of the last step that has one."""
    for step in reversed(run.steps):
        workspace = step.output.get("workspace")
        if step.status == "COMPLETED" and isinstance(workspace, dict):
            return workspace
    return None


def failed_step(run: WorkflowRun) -> Step | None:
    """Return the attempt that a failed workflow failed with."""
    failed = [step for step in run.steps if step.status not in _DONE and not step.is_retried]
    return failed[-1] if failed else None


def error_of(run: WorkflowRun) -> type[PeragoError] | None:
    """Return the kind of error that a failure's reason names, by its code or by its class."""
    step = failed_step(run)
    text = f"{step.reason if step is not None else ''} {run.reason or ''}"
    kinds = _kinds()
    return next((kinds[word] for word in _NAME.findall(text) if word in kinds), None)


def _kinds(root: type[PeragoError] = PeragoError) -> dict[str, type[PeragoError]]:
    found = {root.code: root, root.__name__: root}
    for child in root.__subclasses__():
        found |= _kinds(child)
    return found


def exit_code_of(run: WorkflowRun) -> int:
    """Return 0 for a completed workflow, and else the exit code of its error, 1 at least."""
    if run.status == "COMPLETED":
        return 0
    kind = error_of(run)
    return 1 if kind is None else kind.exit_code
