"""Let what a signal's handler raises wait for the end of a piece of work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# What asks a process to end: Ctrl-C, a service manager, a terminal that is closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], Any]


def heeded_stops() -> list[signal.Signals]:
    """Return the stop signals that this process handles: SIGHUP not where it is ignored.

    Under nohup it is ignored on purpose. SIGINT is ignored as well in a script's background job,
    but there by default: a SIGINT that is sent to this process is meant for it.
    """
    is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if number != signal.SIGHUP or not is_deaf]


def ignore(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing; unlike ``SIG_IGN``, a program does not inherit this."""


def ignore_uninterrupted(number: int) -> None:
    """Ignore a signal from now on, also in C code that waits: its system calls go on."""
    signal.signal(number, ignore)
    signal.siginterrupt(number, False)


@contextmanager
def raising_after(break_off: Callable[[], None]) -> Iterator[None]:
    """Raise at the end of the block what handlers of signals raise in it, not in its middle.

    Python calls handlers in the main thread, between any two of its instructions. What is raised
    there, as by Ctrl-C, can leave a lock of a library held or be lost in its error handling.
    ``break_off`` is called so that the end comes soon; not for a handler that raises nothing.

    :func:`ignore` stays where it is: to put a handler back is to let it interrupt system calls,
    whatever ``siginterrupt`` had set, which cannot be read.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    guards = [
        _Guard(number, handler, break_off)
        for number in STOP_SIGNALS
        if callable(handler := signal.getsignal(number)) and handler is not ignore
    ]
    try:
        for guard in guards:
            signal.signal(guard.number, guard)
        yield
    finally:
        # All of them before the first is put back: an earlier handler may raise from then on.
        for guard in guards:
            guard.is_over = True
        for guard in guards:
            signal.signal(guard.number, guard.handler)
        for guard in guards:
            if guard.raised is not None:
                raise guard.raised


class _Guard:
    """Stands in for the handler of a signal: calls it, and keeps what it raises."""

    def __init__(self, number: int, handler: _Handler, break_off: Callable[[], None]) -> None:
        self.number, self.handler, self._break_off = number, handler, break_off
        self.is_over = False
        self.raised: BaseException | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:
            self.handler(number, frame)
            return
        try:
            self.handler(number, frame)
        except BaseException as raised:  # noqa: BLE001  it is raised at the end of the block
            self.raised = raised
            self._break_off()
