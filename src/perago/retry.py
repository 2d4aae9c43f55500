"""How long an outage of LakeFS is waited for, by requests that may be repeated."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from perago.errors import BackendUnavailableError

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0


def retrying(seconds: float) -> Retrying:
    """Repeat a request that reads, or that done twice is done once, while LakeFS is away."""
    return Retrying(
        retry=retry_if_exception_type(BackendUnavailableError),
        stop=stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        reraise=True,
    )
