"""The two fences: is this attempt still the current one, and may the target branch be moved?

Both are pure. They take what was just read and either return or raise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perago.errors import PublishFenceError, StaleAttemptError
from perago.protocol.identity import Claim
from perago.protocol.ports import Attempts, AttemptSnapshot, Clock
from perago.protocol.workspace import Commit

# A request that must end inside the lease is not even begun with less than this left.
_LEAST_USEFUL_SECONDS = 0.25


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
        return MergeStaged() if changed else CompleteAtInput()
    if head.first_parent == ref:
        return ReplaceAbandoned(head) if changed else ReturnToInput(head)
    raise PublishFenceError(
        f"target branch {branch!r} is at {head.id}, which is neither the input {ref} "
        "nor a direct child of it"
    )


@dataclass(frozen=True, slots=True)
class Lease:
    """The time for which Conductor gives this attempt to no other worker."""

    clock: Clock
    expires_at: float

    def bound(self, timeout: float, what: str) -> float:
        """``timeout``, cut to what is left of the lease; stale if that is not enough."""
        left = self.expires_at - self.clock.monotonic()
        if left < _LEAST_USEFUL_SECONDS:
            raise StaleAttemptError(
                f"only {max(left, 0):.1f} s of the lease are left, not enough to {what}",
                hint="Raise responseTimeoutSeconds of the task (TimeoutPolicy).",
            )
        return min(timeout, left)


class AttemptFence:
    """Asserts that a claim is still the current one, and renews its lease."""

    def __init__(self, attempts: Attempts, claim: Claim, clock: Clock) -> None:
        self._attempts = attempts
        self._claim = claim
        self._clock = clock

    def check(self) -> Lease:
        """Read, renew, and read again: a renewal of an attempt that is over is answered too."""
        self._assert_current()
        # Counted from before the renewal, so that we never believe in more lease than there is.
        renewed_at = self._clock.monotonic()
        self._attempts.renew(self._claim)
        seconds = self._assert_current().response_timeout_seconds or math.inf
        return Lease(self._clock, renewed_at + seconds)

    def _assert_current(self) -> AttemptSnapshot:
        fresh = self._attempts.read(self._claim.attempt.task_id)
        assert_current_attempt_snapshot(self._claim, fresh)
        return fresh
