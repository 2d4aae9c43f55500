"""One attempt, looked at afterwards or while it runs: from Conductor and from LakeFS.

Conductor has the task and what the worker wrote into its log; LakeFS has the staging branch, the
commits and the tags. Nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from perago.conductor.inspection import LogEntry, TaskView
from perago.errors import NotFoundError, find_kind
from perago.operations.history import HistoryLake, find_lost
from perago.protocol.events import WARNINGS
from perago.protocol.identity import parse_staging_name
from perago.protocol.outcome import bare_reason, told_hint
from perago.protocol.record import read_record
from perago.protocol.workspace import BranchHead, Commit, WorkspaceInput

# How far back the target branch is looked through for the attempt's commits.
_LOOKED_THROUGH = 200
_PHASE = re.compile(r"(?P<name>\w+) (?P<seconds>\d+\.\d{3}) s(?P<details>( .*)?)", re.ASCII)
_DETAIL = re.compile(r"(\w+)=(\S+)", re.ASCII)
# Every attempt begins with it, so that it tells a list of phases from a line of progress.
_FIRST_PHASE = "validate "
_OUTPUT = "output:\n"
_TRY = "\nTry: "

Where = Literal["staged", "published", "replaced", "withdrawn"]


class InspectedConductor(Protocol):
    """What is read of Conductor."""

    def task(self, task_id: str) -> TaskView: ...
    def log(self, task_id: str) -> Sequence[LogEntry]: ...


class InspectedLake(HistoryLake, Protocol):
    """What is read of LakeFS."""

    def list_branches(self, repository: str, prefix: str) -> Sequence[BranchHead]: ...


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the attempt, as the task log has it."""

    name: str
    seconds: float
    details: dict[str, str]
    text: str

    @property
    def error(self) -> str | None:
        return self.details.get("error")


@dataclass(frozen=True, slots=True)
class FenceVerdict:
    """What a fence said; ``text`` is for people."""

    fence: Literal["attempt", "publish"]
    phase: str
    passed: bool
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not complete."""

    reason: str
    code: str | None
    hint: str | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class TaskLog:
    """What a worker wrote into the log of a task, by its kinds of entries."""

    phases: tuple[Phase, ...] = ()
    warnings: tuple[str, ...] = ()
    output: str | None = None
    hint: str | None = None
    trace: str | None = None
    # Entries of other kinds: progress of transfers, and what others wrote.
    others: tuple[LogEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptCommit:
    """A commit that the attempt made, and the branch or tag that has it."""

    where: Where
    commit: Commit
    name: str
    # Made by an earlier delivery of the same task, as before a rerun.
    earlier_claim: bool


@dataclass(frozen=True, slots=True)
class Traces:
    """What an attempt left in LakeFS."""

    workspace: WorkspaceInput
    staging_branches: tuple[str, ...]
    commits: tuple[AttemptCommit, ...]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """All that can be said about one attempt."""

    task: TaskView
    log: TaskLog
    fences: tuple[FenceVerdict, ...]
    failure: Failure | None
    workspace: WorkspaceInput | None
    # None for a task without a workspace, and before LakeFS was looked into.
    traces: Traces | None = field(default=None)


def read_attempt(conductor: InspectedConductor, task_id: str) -> AttemptView:
    """Read an attempt from Conductor."""
    try:
        task = conductor.task(task_id)
    except NotFoundError as error:
        raise NotFoundError(
            str(error),
            hint="It takes the id of a task, not of a workflow. Conductor may have removed it; "
            "`perago history REPOSITORY` has the ids of attempts that published.",
        ) from error
    log = read_task_log(conductor.log(task_id), bare_reason(task.reason or ""))
    return AttemptView(
        task, log, tuple(judge_fences(log.phases)), _failure(task, log), _workspace(task.input)
    )


def find_traces(lake: InspectedLake, task: TaskView, workspace: WorkspaceInput) -> Traces:
    """Find what an attempt left in LakeFS."""
    repository, branch = workspace.repository, workspace.branch
    log = lake.log(repository, branch, _LOOKED_THROUGH)
    found: list[AttemptCommit] = []

    def take(where: Where, commit: Commit, name: str) -> None:
        record = read_record(commit)
        if record is not None and record.task_id == task.task_id:
            found.append(AttemptCommit(where, commit, name, record.claim != task.claim))

    for commit in log:
        take("published", commit, branch)
    for lost in find_lost(lake, repository, branch, log):
        take(lost.how, lost.commit, lost.tag)
    staging = []
    for head in lake.list_branches(repository, task.logical.staging_prefix):
        name = parse_staging_name(head.name)
        if name is None or not name.is_of(task.task_id, name.retry_count, name.execution_id):
            continue
        staging.append(head.name)
        if head.commit != workspace.ref:
            take("staged", lake.get_commit(repository, head.commit), head.name)
    return Traces(workspace, tuple(staging), tuple(found))


def read_task_log(entries: Sequence[LogEntry], reason: str | None = None) -> TaskLog:
    """Sort the entries of a task's log; of a task that ran again, its last run is taken."""
    phases: tuple[Phase, ...] = ()
    warnings: list[str] = []
    output = hint = trace = None
    others: list[LogEntry] = []
    for entry in entries:
        text = entry.text
        if text.startswith(_OUTPUT):
            output = text.removeprefix(_OUTPUT)
        elif text.startswith(_FIRST_PHASE):
            # The worker posts an outcome's entries together: this begins a new run.
            phases = tuple(_phases(text))
            warnings, output, hint, trace = [], None, None, None
        elif text.partition(":")[0] in WARNINGS:
            warnings += text.splitlines()
        elif reason and text.startswith(reason.removesuffix("…")):
            hint = text.partition(_TRY)[2] or None
        elif text.startswith("Traceback "):
            trace = text
        else:
            others.append(entry)
    return TaskLog(phases, tuple(warnings), output, hint, trace, tuple(others))


def _phases(text: str) -> Iterator[Phase]:
    for line in text.splitlines():
        if found := _PHASE.fullmatch(line):
            details = dict(_DETAIL.findall(found["details"]))
            yield Phase(found["name"], float(found["seconds"]), details, found["details"].strip())


def judge_fences(phases: Sequence[Phase]) -> Iterator[FenceVerdict]:
    """What each fence said, by the phases of an attempt."""
    for phase in phases:
        if phase.name in ("first_fence", "second_fence"):
            text = f"refused: {phase.error}" if phase.error else "the attempt is current"
            yield FenceVerdict("attempt", phase.name, phase.error is None, text)
        elif phase.name == "publish":
            yield FenceVerdict("publish", phase.name, phase.error is None, _publish_text(phase))


def _publish_text(phase: Phase) -> str:
    if phase.error:
        return f"refused or failed: {phase.error}"
    abandoned = phase.details.get("abandoned")
    return {
        "merged": "the branch was at the input: merged",
        "unchanged": "the branch is at the input, and nothing changed",
        "replaced": f"the branch was at the abandoned publication {abandoned}: replaced",
        "returned": f"the abandoned publication {abandoned} was taken back; nothing changed",
    }.get(phase.details.get("how", ""), phase.text)


def _failure(task: TaskView, log: TaskLog) -> Failure | None:
    if task.reason is None:
        return None
    reason = bare_reason(task.reason)
    kind = find_kind(reason.partition(":")[0])
    hint = log.hint or told_hint(task.reason) or (kind.hint if kind else None)
    return Failure(reason, kind.code if kind else None, hint, log.trace)


def _workspace(payload: dict[str, Any]) -> WorkspaceInput | None:
    try:
        return WorkspaceInput.model_validate(payload.get("workspace"))
    except ValidationError:
        return None
