"""Retry requests while a server is unavailable: the only place that builds retriers.

Only requests that read, or that are idempotent, may be retried; never a commit, a merge or a
relocation.
"""

from __future__ import annotations

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from perago.errors import BackendUnavailableError

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 3.0
# For callers that count tries instead of seconds: a second of waiting or two.
TRIES = 4


def retrying(seconds: float) -> Retrying:
    """Retry on ``BackendUnavailableError`` until ``seconds`` have passed; then raise it."""
    return _retrying(stop_after_delay(seconds))


def retrying_times(tries: int = TRIES) -> Retrying:
    """Retry on ``BackendUnavailableError``, with ``tries`` requests at most; then raise it."""
    return _retrying(stop_after_attempt(tries))


def _retrying(stop: stop_after_delay | stop_after_attempt) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(BackendUnavailableError),
        stop=stop,
        wait=wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        reraise=True,
    )
