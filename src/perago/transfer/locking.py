"""Take a lock on an open file, within a time."""

from __future__ import annotations

import fcntl
import time


def lock_within(descriptor: int, seconds: float, *, pause: float) -> bool:
    """Take the exclusive lock of an open file, and return whether it could be had in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
        else:
            return True
