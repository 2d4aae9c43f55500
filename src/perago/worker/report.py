"""Report to Conductor: the outcome of an attempt, its progress and its task log.

Nothing is ever posted over another claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import structlog

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendRefusedError,
    BackendUnavailableError,
    NotFoundError,
    StaleAttemptError,
)
from perago.http_client import deadline
from perago.masking import mask_secrets, sendable
from perago.protocol.events import WARNINGS, PhaseEvent, describe_progress
from perago.protocol.fences import assert_current_attempt_snapshot
from perago.protocol.identity import Claim
from perago.protocol.outcome import Completed, Failed, Outcome, failure_of
from perago.protocol.ports import AttemptSnapshot
from perago.retry import retrying
from perago.text import as_utf8, shorten, shorten_middle

# A transfer of a million objects finishes several partitions a second; each post is a request.
_SECONDS_BETWEEN_POSTS = 10.0
# Meanwhile the executor gets no answers, and it takes none within 10 s for a no.
_LONGEST_POST_SECONDS = 3.0
_LEAST_SECONDS = 1.0
# For so long a reading of the task counts as made just now: no longer than a slow answer takes.
_FRESH_SECONDS = 0.25
_PROGRESS = frozenset({"partition_done", "task_progress"})
# Characters of one entry of the task log.
_LONGEST = 20_000
_log = structlog.get_logger(__name__)


class Reporting(Protocol):
    """What posting needs of Conductor."""

    def read(self, task_id: str) -> AttemptSnapshot: ...
    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None: ...
    def hand_back(self, claim: Claim) -> None: ...


class Reported(StrEnum):
    """What became of an outcome."""

    POSTED = "posted"
    STALE = "stale"
    # Conductor no longer has the task: the attempt is over, and nothing is lost.
    GONE = "gone"
    # Conductor took a FAILED that says why in place of the outcome.
    REFUSED = "refused"


def report(
    conductor: Reporting,
    claim: Claim,
    outcome: Outcome,
    logs: list[str],
    *,
    seconds: float,
    read_at: float | None = None,
    read_back: bool = True,
) -> Reported:
    """Post an outcome, trying again within ``seconds``; raises if Conductor stays away.

    No request goes beyond that time, also to a Conductor that takes it and never answers.
    Conductor checks no claim on an update: a late FAILED of an old execution would end the live
    one. So the task is read before every post, unless its claim was seen a moment ago, at
    ``read_at`` on the monotonic clock: the poll that made the claim is such a reading.
    With ``read_back`` it is also read after the post, because a renewal of the lease that is still
    under way can overwrite it. What Conductor refuses is replaced by a small FAILED that says so:
    an outcome that cannot be delivered would leave the attempt to its response timeout.
    """
    ends = time.monotonic() + seconds
    is_fresh = read_at is not None and time.monotonic() - read_at < _FRESH_SECONDS
    try:
        return _post(
            conductor,
            claim,
            outcome,
            logs,
            seconds=seconds,
            is_fresh=is_fresh,
            read_back=read_back,
        )
    except NotFoundError:
        return Reported.GONE
    except (BackendRefusedError, BackendDeniedError) as error:
        told = shorten(mask_secrets(repr(outcome)), _LONGEST)
        _log.error("result_refused", reason=str(error), outcome=told)
        left = max(ends - time.monotonic(), _LEAST_SECONDS)
        return _post_refusal(conductor, claim, error, seconds=left)


def _post_refusal(
    conductor: Reporting, claim: Claim, error: BackendError, *, seconds: float
) -> Reported:
    refused = failure_of(
        BackendRefusedError(
            f"Conductor refused the result of this attempt: {error}",
            hint="The worker's log has the result; make it smaller or simpler.",
        )
    )
    try:
        posted = _post(conductor, claim, replace(refused, trace=""), [], seconds=seconds)
    except NotFoundError:
        return Reported.GONE
    return Reported.REFUSED if posted is Reported.POSTED else posted


def _post(
    conductor: Reporting,
    claim: Claim,
    outcome: Outcome,
    logs: list[str],
    *,
    seconds: float,
    is_fresh: bool = False,
    read_back: bool = True,
) -> Reported:
    outcome, logs = _sendable(outcome), [sendable(line) for line in logs]
    wanted = "COMPLETED" if isinstance(outcome, Completed) else outcome.disposition.value
    with deadline(seconds):
        for attempt in retrying(seconds):
            with attempt:
                if not is_fresh:
                    fresh = conductor.read(claim.attempt.task_id)
                    if (fresh.status, fresh.worker_id) == (wanted, claim.token):
                        return Reported.POSTED
                    if not _is_ours(claim, fresh):
                        return Reported.STALE
                is_fresh = False  # what this try sends may arrive, and be answered, late
                conductor.complete(claim, outcome, logs)
                if read_back and conductor.read(claim.attempt.task_id).status == "IN_PROGRESS":
                    raise BackendUnavailableError("Conductor took the result and did not store it")
                return Reported.POSTED
    raise AssertionError("unreachable")  # pragma: no cover


def _sendable(outcome: Outcome) -> Outcome:
    """Mask secrets in the texts of a failure; those in a result are masked where it is built."""
    if isinstance(outcome, Completed):
        return outcome
    hint = sendable(outcome.hint) if outcome.hint else outcome.hint
    return replace(
        outcome, reason=sendable(outcome.reason), hint=hint, trace=sendable(outcome.trace)
    )


def hand_back(conductor: Reporting, claim: Claim, *, seconds: float) -> Reported:
    """Put an attempt back into Conductor's queue without burning a retry."""
    try:
        with deadline(seconds):
            for attempt in retrying(seconds):
                with attempt:
                    if not _is_ours(claim, conductor.read(claim.attempt.task_id)):
                        return Reported.STALE
                    conductor.hand_back(claim)
                    return Reported.POSTED
    except NotFoundError:
        return Reported.GONE
    raise AssertionError("unreachable")  # pragma: no cover


def _is_ours(claim: Claim, fresh: AttemptSnapshot) -> bool:
    try:
        assert_current_attempt_snapshot(claim, fresh)
    except StaleAttemptError:
        return False
    return True


def event_line(event: PhaseEvent) -> str:
    """An event as the task log has it."""
    if event.action == "task_progress":
        return describe_progress(event)
    details = "".join(f" {key}={value}" for key, value in event.details.items())
    return f"{event.phase} {event.seconds or 0.0:.3f} s{details}"


class Progress:
    """Collects the lines of finished partitions and of a body's progress; posts them now and then.

    What cannot be posted is in the worker's log all the same: no error comes out of here.
    """

    def __init__(
        self, post: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._post = post
        self._clock = clock
        self._lines: list[str] = []
        self._posted_at = clock()

    def note(self, event: PhaseEvent) -> None:
        if event.action not in _PROGRESS:
            return
        self._lines.append(event_line(event))
        if self._clock() - self._posted_at >= _SECONDS_BETWEEN_POSTS:
            self.flush()

    def flush(self) -> None:
        """Post what has not been posted yet."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            # One line: Conductor shows an entry of its log as one.
            text = shorten_middle(as_utf8(sendable("; ".join(lines))), _LONGEST)
            with deadline(_LONGEST_POST_SECONDS):
                self._post(text)
        except BackendError as error:
            _log.warning("progress_not_posted", reason=str(error))
        self._posted_at = self._clock()


def task_log(events: Sequence[PhaseEvent], outcome: Outcome, output: str = "") -> list[str]:
    """What the Conductor task log keeps of an attempt: its phases, its output and why it failed.

    Conductor keeps ten entries and drops the rest, so each kind of line is one bounded entry.
    """
    timed = (event for event in events if event.seconds is not None)
    # Partitions were told while the attempt ran.
    phases = [event_line(event) for event in timed if event.action != "partition_done"]
    warnings = [
        f"{event.action}: {event.details.get('message') or event.details}"
        for event in events
        if event.action in WARNINGS
    ]
    entries = ["\n".join(phases), "\n".join(warnings), f"output:\n{output}" if output else ""]
    if isinstance(outcome, Failed):
        entries.append(f"{outcome.reason}\nTry: {outcome.hint}" if outcome.hint else outcome.reason)
        entries.append(outcome.trace)
    # Before it is cut, also in `Progress`: half a secret would not be found any more.
    return [shorten_middle(sendable(as_utf8(entry)), _LONGEST) for entry in entries if entry]
