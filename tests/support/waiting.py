"""Waiting for something to become true, for a bounded time."""

from __future__ import annotations

import subprocess
import threading
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


def joined(thread: threading.Thread, seconds: float = PATIENCE) -> None:
    """Wait for the end of a thread."""
    thread.join(seconds)
    assert not thread.is_alive(), f"{thread.name} did not end within {seconds:.0f} s"


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process; its output is not read, as its children may hold the pipes open."""
    process.kill()
    process.wait(20)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
