"""Identify processes and end them.

A pid alone is not an identity, because the kernel reuses it. Signals are sent to a pid *with* a
creation time, so that a stale record never ends an unrelated process.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

# Conductor writes its queues back on SIGTERM; a longer shutdown is treated as hung.
GRACE_SECONDS = 10.0
# After SIGKILL, the kernel needs a moment to remove the process from its table.
KILL_SECONDS = 5.0
_POLL_SECONDS = 0.05
# psutil derives creation times from the boot time, which it may read slightly differently.
_CREATION_TOLERANCE = 1.0


@dataclass(frozen=True)
class ProcessId:
    """The identity of one process of this machine."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Identify the process with this pid; None when there is none."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    @property
    def alive(self) -> bool:
        """Whether this process still runs. A zombie, which waits for its parent, does not."""
        return self._find() is not None

    def _find(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created) > _CREATION_TOLERANCE:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None

    def descendants(self) -> list[ProcessId]:
        """Find the processes below this one, such as the Python workers of a Spark server."""
        process = self._find()
        if process is None:
            return []
        try:
            return [
                found for child in process.children(recursive=True) if (found := self.of(child.pid))
            ]
        except psutil.NoSuchProcess:
            return []

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # A process that has ended meanwhile needs no signal.
        if process := self._find():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until the processes are gone; return those that still run after ``seconds``."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if process.alive]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = [process for process in left if process.alive]
    return left


def end(processes: Iterable[ProcessId], grace: float = GRACE_SECONDS) -> list[ProcessId]:
    """End processes and all their descendants; return those that still run.

    Only the named processes get SIGTERM, so that each can end its own children in order. What still
    runs after ``grace`` seconds is killed, and so are descendants that outlived their parent.
    """
    named = list(processes)
    below = [child for process in named for child in process.descendants()]
    for process in named:
        process.terminate()
    wait_gone(named, grace)
    for process in named:
        process.kill()
    # A Spark worker ends by itself when its parent's pipe closes; wait a moment for that.
    for child in wait_gone(below, 1.0):
        child.kill()
    return wait_gone([*named, *below], KILL_SECONDS)
