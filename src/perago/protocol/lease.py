"""The attempt fence as it is used: read, compare, renew, and know how long that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perago.errors import StaleAttemptError
from perago.protocol.fences import AttemptSnapshot, assert_current_attempt_snapshot
from perago.protocol.identity import Claim
from perago.protocol.ports import Attempts, Clock

# A request that must end inside the lease is not even begun with less than this left.
_LEAST_USEFUL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Lease:
    """The time for which Conductor will give this attempt to nobody else."""

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
