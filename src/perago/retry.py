"""Retry requests while a server is unavailable: the only place that builds retriers and pauses.

Only requests that read, or that are idempotent, may be retried; never a commit, a merge or a
relocation, unless the request certainly did not leave this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    stop_before_delay,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from perago.errors import BackendUnavailableError, LostReplyError
from perago.http_client import RequestError, seconds_left

Answered = TypeVar("Answered")

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 3.0
# For callers that count tries instead of seconds: a second of waiting or two.
TRIES = 4
# For a change that is retried only while it cannot be sent at all.
UNSENT_SECONDS = 5.0
# By then every pause is as long as it gets. What fails all night would double beyond any float.
_MOST_DOUBLINGS = 64


def growing_pause(first: float, longest: float, failures: int) -> float:
    """Seconds to wait after so many failures in a row: twice as long each time, within a bound."""
    return min(math.ldexp(first, min(failures - 1, _MOST_DOUBLINGS)), longest)


def retrying(seconds: float) -> Retrying:
    """Retry on ``BackendUnavailableError`` until ``seconds`` have passed; then raise it."""
    return _retrying(stop_after_delay(seconds))


def retrying_times(tries: int = TRIES) -> Retrying:
    """Retry on ``BackendUnavailableError``, with ``tries`` requests at most; then raise it."""
    return _retrying(stop_after_attempt(tries))


def retrying_unsent(seconds: float) -> Retrying:
    """Retry on a ``RequestError`` for a request that was not sent, within ``seconds``."""
    return Retrying(
        retry=retry_if_exception(_was_not_sent),
        stop=stop_any(stop_before_delay(seconds), _StopBeforeDeadline()),
        wait=_WAIT,
        reraise=True,
    )


def retry_change(retrier: Retrying, send: Callable[[], Answered]) -> Answered:
    """Send an idempotent change with retries.

    Once a reply was lost, the change may have been made, whatever the later tries ended with: the
    error stays a ``LostReplyError``.
    """
    lost = False

    def once() -> Answered:
        nonlocal lost
        try:
            return send()
        except BackendUnavailableError as error:
            lost = lost or isinstance(error, LostReplyError)
            if lost and not isinstance(error, LostReplyError):
                raise LostReplyError(str(error), hint=error.hint) from None
            raise

    return retrier(once)


_WAIT = wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS)


class _StopBeforeDeadline(stop_base):
    """No wait goes beyond the deadline of this thread."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        return retry_state.upcoming_sleep >= seconds_left()


def _was_not_sent(error: BaseException) -> bool:
    return isinstance(error, RequestError) and not error.sent


def _retrying(stop: stop_after_delay | stop_after_attempt) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(BackendUnavailableError),
        stop=stop_any(stop, _StopBeforeDeadline()),
        wait=_WAIT,
        reraise=True,
    )
