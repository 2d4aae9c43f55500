"""Provenance: which commit one past the input may be replaced. Pure.

Within the protocol's assumptions a commit one past the input is the abandoned publication of an
earlier execution of the same logical task. Its record says so; anything else is the work of a
person, of another tool or of another step, and is never moved off the branch by default.
"""

from __future__ import annotations

from perago.errors import PublishFenceError
from perago.protocol.identity import Attempt
from perago.protocol.job import Replacement
from perago.protocol.record import Record, read_record
from perago.protocol.workspace import Commit, WorkspaceInput
from perago.text import shorten_line

_LONGEST_MESSAGE = 120
_NEW_WORKFLOW = "Start a new workflow from the branch's current HEAD."


def assert_replaceable(head: Commit, attempt: Attempt, replacement: Replacement) -> None:
    """Raise ``PublishFenceError`` unless this attempt may replace the commit at HEAD."""
    record = read_record(head)
    if replacement == "off":
        raise PublishFenceError(
            f"{_described(head, record)}, and replacement is off", hint=_NEW_WORKFLOW
        )
    if record is not None and record.is_of_later_attempt_than(attempt):
        raise PublishFenceError(f"HEAD {head.id} was published by a later attempt of this step")
    if replacement == "head-state" or (record is not None and record.logical == attempt.logical):
        return
    raise PublishFenceError(_refusal(head, record, attempt), hint=_hint(record, attempt))


def explain_moved(head: Commit, workspace: WorkspaceInput, attempt: Attempt) -> PublishFenceError:
    """Build the error for a branch that is more than one commit past the input, or elsewhere."""
    record = read_record(head)
    return PublishFenceError(
        f"target branch {workspace.branch!r} is neither at the input {workspace.ref} nor one "
        f"commit past it: {_refusal(head, record, attempt)}",
        hint=_hint(record, attempt),
    )


def _refusal(head: Commit, record: Record | None, attempt: Attempt) -> str:
    described = _described(head, record)
    if record is None:
        return f"{described}, not by this task: start a new workflow from HEAD"
    if record.workflow_instance_id != attempt.workflow_instance_id:
        return f"{described}: two workflows write this branch"
    if record.reference_name == attempt.reference_name:
        return f"{described}, iteration {record.iteration}, which completed"
    step = record.reference_name
    return f"{described}, which completed: give this step ${{{step}.output.workspace}}"


def _hint(record: Record | None, attempt: Attempt) -> str:
    if record is None or record.workflow_instance_id != attempt.workflow_instance_id:
        return _NEW_WORKFLOW
    if record.reference_name == attempt.reference_name:
        return "Give each iteration the output workspace of the one before as its input."
    return "Correct the step's workspace in the workflow definition, then start a new workflow."


def _described(head: Commit, record: Record | None) -> str:
    if record is not None:
        return (
            f"HEAD {head.id} was published by step {record.reference_name!r} of workflow "
            f"{record.workflow_instance_id}"
        )
    message = shorten_line(head.message, _LONGEST_MESSAGE)
    made = f", made at {head.created.isoformat(timespec='seconds')}" if head.created else ""
    return f"HEAD {head.id} is a commit by {head.committer or 'unknown'!r}, {message!r}{made}"
