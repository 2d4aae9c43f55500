"""Follow a workflow to its end, and say what it ended with."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from perago.conductor.inspection import LogEntry
from perago.conductor.workflows import ConductorWorkflows, StepAttempt, WorkflowRun
from perago.errors import BackendUnavailableError, PeragoError, find_kind
from perago.operations.workflow_file import DONE_BY_CONDUCTOR
from perago.protocol.outcome import bare_reason
from perago.protocol.ports import Clock
from perago.text import shorten_line

_POLL_SECONDS = 0.5
# How long Conductor may be away before following it is given up; the workflow goes on.
_OUTAGE_SECONDS = 60.0
# After so long without a worker, and then every so often, that is said.
_UNCLAIMED_SECONDS = 5.0
_UNCLAIMED_AGAIN_SECONDS = 60.0
_NAME = re.compile(r"\bPRG-\d{3}\b|\b[A-Z]\w+(?=:)", re.ASCII)
_LONGEST_REASON = 500

Tell = Callable[[str], None]


@dataclass(slots=True)
class Follower:
    """Follows one workflow and tells what happens, one line per change of a step."""

    workflows: ConductorWorkflows
    workflow_id: str
    tell: Tell
    clock: Clock
    # Reads the log of an attempt that ended, which is told then: phases, output and warnings.
    read_log: Callable[[str], list[LogEntry]] | None = None
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
        for step in run.attempts:
            if self._seen.get(step.task_id) != step.status:
                self._seen[step.task_id] = step.status
                if step.kind not in _SILENT or step.status not in _DONE:
                    yield describe_step(step)
                if self.read_log is not None and step.is_for_worker and step.ended_ms:
                    yield from self._log(self.read_log, step)
            if step.status == "SCHEDULED" and step.is_for_worker and not run.is_over:
                yield from self._unclaimed(step)
        if run.status != self._status:
            self._status = run.status
            if not run.is_over:
                yield f"the workflow is {run.status}"

    def _log(self, read_log: Callable[[str], list[LogEntry]], step: StepAttempt) -> Iterator[str]:
        try:
            texts = [entry.text for entry in read_log(step.task_id)]
        except PeragoError as error:
            texts = [str(error)]
        yield from (f"  {line}" for text in texts for line in text.splitlines())

    def _unclaimed(self, step: StepAttempt) -> Iterator[str]:
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
# These say nothing unless they fail. FORK is how Conductor names a FORK_JOIN that runs.
_SILENT = {"FORK", *DONE_BY_CONDUCTOR}


def describe_step(step: StepAttempt) -> str:
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
    if not step.reason:
        return line
    return f"{line}: {shorten_line(bare_reason(step.reason), _LONGEST_REASON)}"


def seconds_of(step: StepAttempt) -> float:
    """How long an attempt ran, by Conductor's clock; 0 for one that did not end."""
    return max(step.ended_ms - step.started_ms, 0) / 1000 if step.started_ms else 0.0


def ref_of(step: StepAttempt) -> str | None:
    """Return the commit in a step's output workspace, if it has one."""
    workspace = step.output.get("workspace")
    ref = workspace.get("ref") if isinstance(workspace, dict) else None
    return ref if isinstance(ref, str) else None


def last_workspace(run: WorkflowRun) -> dict[str, Any] | None:
    """Return the workspace that the workflow left: the output of the last step that has one."""
    for step in reversed(run.attempts):
        workspace = step.output.get("workspace")
        if step.status == "COMPLETED" and isinstance(workspace, dict):
            return workspace
    return None


def failed_attempt(run: WorkflowRun) -> StepAttempt | None:
    """Return the attempt that a failed workflow failed with."""
    failed = [step for step in run.attempts if step.status not in _DONE and not step.is_retried]
    return failed[-1] if failed else None


def error_of(run: WorkflowRun) -> type[PeragoError] | None:
    """Return the kind of error that a failure's reason names, by its code or by its class."""
    step = failed_attempt(run)
    text = f"{step.reason if step is not None else ''} {run.reason or ''}"
    return next((kind for word in _NAME.findall(text) if (kind := find_kind(word))), None)


def exit_code_of(run: WorkflowRun) -> int:
    """Return 0 for a completed workflow, and else the exit code of its error, 1 at least."""
    if run.status == "COMPLETED":
        return 0
    kind = error_of(run)
    return 1 if kind is None else kind.exit_code
