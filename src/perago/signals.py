"""Handle a signal after a piece of work, and not in the middle of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def signals_after(break_off: Callable[[], None]) -> Iterator[None]:
    """Let a signal only call ``break_off`` in the block; its handler is called at the end.

    Python calls handlers in the main thread, between any two of its instructions. One that raises
    there, as Ctrl-C does, can leave a lock of a library held or be lost in its error handling.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = [
        _Later(number, handler, break_off)
        for number in _SIGNALS
        if callable(handler := signal.getsignal(number))
    ]
    try:
        for later in waiting:
            signal.signal(later.number, later)
        yield
    finally:
        # All of them before the first is put back: an earlier handler may raise from then on.
        for later in waiting:
            later.is_over = True
        for later in waiting:
            signal.signal(later.number, later.handler)
        for later in waiting:
            later.catch_up()


class _Later:
    """Stands in for the handler of a signal, and remembers that it came."""

    def __init__(self, number: int, handler: _Handler, break_off: Callable[[], None]) -> None:
        self.number, self.handler, self._break_off = number, handler, break_off
        self.is_over = False
        self._came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:
            self.handler(number, frame)
            return
        self._came = True
        self._break_off()

    def catch_up(self) -> None:
        if self._came:
            self._came = False
            self.handler(self.number, None)
