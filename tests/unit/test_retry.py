"""Requests are retried while a server is unavailable, within a bound, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tenacity import Retrying

from perago.errors import BackendUnavailableError, NotFoundError
from perago.retry import TRIES, retrying, retrying_times


class Requests:
    """Fails with an error for a number of times, then answers; counts the tries."""

    def __init__(self, error: Exception, times: int) -> None:
        self._error, self._times, self.tries = error, times, 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self._times:
            raise self._error
        return "answer"


@pytest.mark.parametrize("retrier", [lambda: retrying(60), retrying_times])
def test_an_outage_that_ends_is_not_noticed(retrier: Callable[[], Retrying]) -> None:
    request = Requests(BackendUnavailableError("down"), 2)
    assert retrier()(request) == "answer"
    assert request.tries == 3


def test_the_last_error_is_raised_when_the_tries_are_used_up() -> None:
    request = Requests(BackendUnavailableError("down"), 100)
    with pytest.raises(BackendUnavailableError, match="down"):
        retrying_times()(request)
    assert request.tries == TRIES


def test_without_time_for_a_retry_there_is_one_try() -> None:
    request = Requests(BackendUnavailableError("down"), 100)
    with pytest.raises(BackendUnavailableError, match="down"):
        retrying(0)(request)
    assert request.tries == 1


def test_a_refusal_is_never_retried() -> None:
    request = Requests(NotFoundError("no such branch"), 100)
    with pytest.raises(NotFoundError):
        retrying(60)(request)
    assert request.tries == 1
