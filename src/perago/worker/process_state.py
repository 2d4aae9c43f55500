"""What a process has once, and a body may change for all that runs there after it.

A body that changes its folder or leaves an alarm set would otherwise break the publication of its
own result, or the next attempt. Kept is what modules change when they are imported. Environment
variables stay as a body leaves them: libraries that it imports set some for good.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from perago.observability.logs import restore_logs
from perago.signals import STOP_SIGNALS, ignore_uninterrupted

_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@dataclass(frozen=True)
class ProcessState:
    """The state to go back to after each body. Stop signals are always ignored."""

    folder: Path
    umask: int
    handlers: Mapping[int, Any]
    limits: Mapping[int, int]
    streams: tuple[TextIO | None, TextIO | None, TextIO | None]
    socket_seconds: float | None
    recursion: int

    @classmethod
    def take(cls) -> Self:
        return cls(
            folder=Path.cwd(),
            umask=_umask(),
            handlers=_handlers(),
            limits={limit: resource.getrlimit(limit)[0] for limit in _LIMITS},
            streams=(sys.stdin, sys.stdout, sys.stderr),
            socket_seconds=socket.getdefaulttimeout(),
            recursion=sys.getrecursionlimit(),
        )

    def restore(self) -> None:
        """Go back to this state, as far as the system allows; call it in the main thread."""
        self._restore_signals()
        with contextlib.suppress(OSError):  # the folder may be gone
            os.chdir(self.folder)
        os.umask(self.umask)
        for limit, soft in self.limits.items():
            _restore_limit(limit, soft)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        socket.setdefaulttimeout(self.socket_seconds)
        sys.setrecursionlimit(self.recursion)
        restore_logs()

    def _restore_signals(self) -> None:
        # Timers first: what they raise belongs to the body, and not to what comes after it.
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self.handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        ignore_stop_signals()


def ignore_stop_signals() -> None:
    """Leave stop signals to the supervisor.

    A handler does that and not ``SIG_IGN``, which the programs that a body starts would inherit.
    """
    for number in STOP_SIGNALS:
        ignore_uninterrupted(number)


def _umask() -> int:
    """The mask for new files, which can only be read by setting it."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def _handlers() -> dict[int, Any]:
    """The handlers that Python knows of; those of C code cannot be put back."""
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    fixed = {signal.SIGKILL, signal.SIGSTOP, *STOP_SIGNALS}
    return {
        number: handler
        for number, handler in found.items()
        if handler is not None and number not in fixed
    }


def _restore_limit(limit: int, soft: int) -> None:
    found, hard = resource.getrlimit(limit)
    if found != soft:
        # A hard limit that was lowered stays: only a new process has the old one.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (soft, hard))
