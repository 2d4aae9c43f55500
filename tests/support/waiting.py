"""Waiting for something to become true, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 110.0


def until(
    condition: Callable[[], Any], what: str, seconds: float = PATIENCE, every: float = 0.05
) -> Any:
    """Wait until ``condition`` returns something true, and return that; else fail with ``what``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(every)
    raise AssertionError(f"did not happen within {seconds:.0f} s: {what}")
