"""Processes by identity, and how they are ended.

A pid alone is not an identity: the kernel hands it out again. Everything that is signalled here
is named by its pid *and* its creation time, so that a stale record never hits a stranger.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

# Conductor writes its queues back on SIGTERM; what takes longer than this is stuck.
GRACE_SECONDS = 10.0
# Nothing survives SIGKILL; the wait is for the kernel to take the process off its table.
KILL_SECONDS = 5.0
_POLL_SECONDS = 0.05
# psutil derives creation times from the boot time, whose reading may wander a little.
_CREATION_TOLERANCE = 1.0


@dataclass(frozen=True)
class ProcessId:
    """One process of this machine, for as long as it lives and never another one."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The identity of a process that runs now; None when there is none."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    @property
    def alive(self) -> bool:
        """Whether this very process still runs. A zombie does not: it only waits for its parent."""
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
        """The processes below this one, such as the Python workers of a Spark server."""
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
        """End the process without asking (SIGKILL)."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # A process that ended a moment ago is what was wanted.
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
    """End processes and everything below them; return what could not be ended.

    Only the processes named are asked to end: they take their own children down in good order.
    A child that is still there afterwards has lost its parent and is killed.
    """
    named = list(processes)
    below = [child for process in named for child in process.descendants()]
    for process in named:
        process.terminate()
    wait_gone(named, grace)
    for process in named:
        process.kill()
    # A worker reads the end of its parent's pipe first; give it a moment to leave by itself.
    for child in wait_gone(below, 1.0):
        child.kill()
    return wait_gone([*named, *below], KILL_SECONDS)
