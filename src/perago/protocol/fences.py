"""The two fences: is this attempt still the current one, and may the target branch be moved?

Both are pure. They take what was just read and either return or raise.
"""

from __future__ import annotations

from dataclasses import dataclass

from perago.errors import PublishFenceError, StaleAttemptError
from perago.protocol.identity import Claim
from perago.protocol.workspace import Commit


@dataclass(frozen=True, slots=True)
class AttemptSnapshot:
    """A fresh read of a Conductor task."""

    status: str
    workflow_instance_id: str
    task_id: str
    retry_count: int
    worker_id: str | None
    response_timeout_seconds: float = 0.0
    retried_task_id: str | None = None
    # Why the attempt did not complete, in the words of whoever ended it.
    reason: str | None = None


def assert_current_attempt_snapshot(claim: Claim, fresh: AttemptSnapshot) -> None:
    """Attempt fence: the task must be in progress and everything about it as it was polled."""
    attempt = claim.attempt
    expectations = (
        ("status", "IN_PROGRESS", fresh.status),
        ("workflow_instance_id", attempt.workflow_instance_id, fresh.workflow_instance_id),
        ("task_id", attempt.task_id, fresh.task_id),
        ("retry_count", attempt.retry_count, fresh.retry_count),
        ("claim", claim.token, fresh.worker_id),
    )
    for name, ours, theirs in expectations:
        if ours != theirs:
            raise StaleAttemptError(
                f"attempt {attempt.task_id} is no longer current: "
                f"{name} is {theirs!r}, not {ours!r}"
            )


@dataclass(frozen=True, slots=True)
class CompleteAtInput:
    """Nothing changed and the target is at the input: nothing to do."""


@dataclass(frozen=True, slots=True)
class MergeStaged:
    """The target is at the input: squash-merge the staged commit."""

    expected_head: str


@dataclass(frozen=True, slots=True)
class ReplaceAbandoned:
    """The target is one commit past the input: put the staged commit in its place."""

    abandoned: Commit


@dataclass(frozen=True, slots=True)
class ReturnToInput:
    """Nothing changed and the target is one commit past the input: move it back."""

    abandoned: Commit


PublicationPlan = CompleteAtInput | MergeStaged | ReplaceAbandoned | ReturnToInput


def build_workspace_publication_plan(
    *, ref: str, head: Commit, changed: bool, branch: str = ""
) -> PublicationPlan:
    """Publish fence: what may be done with a target branch whose HEAD is ``head``."""
    if head.id == ref:
        return MergeStaged(expected_head=ref) if changed else CompleteAtInput()
    if head.first_parent == ref:
        return ReplaceAbandoned(head) if changed else ReturnToInput(head)
    raise PublishFenceError(
        f"target branch {branch!r} is at {head.id}, which is neither the input {ref} "
        "nor a direct child of it"
    )
