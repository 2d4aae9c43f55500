"""Posting an outcome without ever posting over somebody else's claim."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from perago.errors import BackendUnavailableError, StaleAttemptError
from perago.protocol.fences import AttemptSnapshot, assert_current_attempt_snapshot
from perago.protocol.identity import Claim
from perago.protocol.outcome import Completed, Outcome


class Reporting(Protocol):
    """What posting needs of Conductor."""

    def read(self, task_id: str) -> AttemptSnapshot: ...
    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None: ...
    def hand_back(self, claim: Claim) -> None: ...


class Delivered(StrEnum):
    """What became of an outcome."""

    POSTED = "posted"
    STALE = "stale"


def report(
    conductor: Reporting, claim: Claim, outcome: Outcome, logs: list[str], *, seconds: float
) -> Delivered:
    """Post an outcome, trying again within ``seconds``; raises if Conductor stays away.

    Conductor checks no claim on an update: a late FAILED of an old execution would end the live
    one. So the task is read before every post, and after it, because a post whose reply was lost
    may have been taken.
    """
    wanted = "COMPLETED" if isinstance(outcome, Completed) else outcome.disposition.value
    for attempt in _patiently(seconds):
        with attempt:
            fresh = conductor.read(claim.attempt.task_id)
            if (fresh.status, fresh.worker_id) == (wanted, claim.token):
                return Delivered.POSTED
            if not _is_ours(claim, fresh):
                return Delivered.STALE
            conductor.complete(claim, outcome, logs)
            if conductor.read(claim.attempt.task_id).status == "IN_PROGRESS":
                raise BackendUnavailableError("Conductor took the result and did not store it")
            return Delivered.POSTED
    raise AssertionError("unreachable")  # pragma: no cover


def hand_back(conductor: Reporting, claim: Claim, *, seconds: float = 10.0) -> Delivered:
    """Put an attempt back into Conductor's queue without burning a retry."""
    for attempt in _patiently(seconds):
        with attempt:
            if not _is_ours(claim, conductor.read(claim.attempt.task_id)):
                return Delivered.STALE
            conductor.hand_back(claim)
            return Delivered.POSTED
    raise AssertionError("unreachable")  # pragma: no cover


def _is_ours(claim: Claim, fresh: AttemptSnapshot) -> bool:
    try:
        assert_current_attempt_snapshot(claim, fresh)
    except StaleAttemptError:
        return False
    return True


def _patiently(seconds: float) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(BackendUnavailableError),
        stop=stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    )
