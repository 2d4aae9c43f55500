"""Capture what a task prints: every line goes to the worker's log with the attempt's ids.

The pipe behind an executor's stdout and stderr is read here, in the supervisor: a body that prints
from C code while it holds the interpreter's lock could never be read by its own process.
"""

from __future__ import annotations

import contextvars
import os
import select
import threading
from collections import deque

import structlog

from perago.masking import mask_secrets
from perago.text import as_utf8

_PIECE = 1 << 16
# What one turn reads at most, so that a flood cannot keep others from the lock.
_TURN = 1 << 20
_LONGEST_LINE = 4000
_MOST_LOGGED = 2000
_MOST_KEPT = 16_000
_log = structlog.get_logger(__name__)


class TaskOutput:
    """The output of one executor, attributed to the attempt that runs."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._open = True
        self._context = contextvars.copy_context()
        self._partial = b""
        self._kept = _Kept()
        self._logged = 0
        threading.Thread(target=self._run, name="perago-output", daemon=True).start()

    def begin(self) -> None:
        """From now on, what comes belongs to the attempt whose ids this thread logs with."""
        with self._lock:
            self._pump()
            self._end_line()
            self._context = contextvars.copy_context()
            self._kept = _Kept()
            self._logged = 0

    def keep(self, text: str) -> None:
        """Keep a text for the task log that the worker's log has already."""
        with self._lock:
            self._kept.add(text)

    def finish(self) -> str:
        """Read what is there, and return what the task log gets."""
        with self._lock:
            self._pump()
            self._end_line()
            return self._kept.text()

    def _run(self) -> None:
        readable = select.poll()
        readable.register(self._descriptor, select.POLLIN)
        while self._open:
            readable.poll()
            with self._lock:
                self._pump()
        os.close(self._descriptor)

    def _pump(self) -> None:
        read = 0
        while self._open and read < _TURN:
            try:
                piece = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self._open = False
                self._end_line()
                return
            read += len(piece)
            self._feed(piece)

    def _feed(self, piece: bytes) -> None:
        *lines, self._partial = (self._partial + piece).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._partial) > 2 * _LONGEST_LINE:
            self._cut()

    def _cut(self) -> None:
        """Take what is there of a line without an end, and leave enough to know a secret by."""
        text = mask_secrets(self._partial.decode(errors="surrogateescape"))
        while len(text) > 2 * _LONGEST_LINE:
            self._take(text[:_LONGEST_LINE].encode(errors="surrogateescape"))
            text = text[_LONGEST_LINE:]
        self._partial = text.encode(errors="surrogateescape")

    def _end_line(self) -> None:
        line, self._partial = self._partial, b""
        self._take(line)

    def _take(self, line: bytes) -> None:
        # Masked before it is cut: half a secret would not be found any more.
        text = mask_secrets(line.decode(errors="replace").rstrip("\r"))
        for start in range(0, len(text), _LONGEST_LINE):
            self._tell(text[start : start + _LONGEST_LINE])

    def _tell(self, text: str) -> None:
        if not text.strip():
            return
        self._kept.add(text)
        self._logged += 1
        if self._logged <= _MOST_LOGGED:
            self._context.run(_log_line, text)
        elif self._logged == _MOST_LOGGED + 1:
            self._context.run(_log_cut)


def _log_line(text: str) -> None:
    _log.info("task_output", text=text)


def _log_cut() -> None:
    _log.warning("task_output_cut", reason=f"more than {_MOST_LOGGED} lines")


class _Kept:
    """The end of an output, within bounds."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        line = as_utf8(text[:_LONGEST_LINE])
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > _MOST_KEPT:
            self._size -= len(self._lines.popleft()) + 1
            self._dropped += 1

    def text(self) -> str:
        cut = [f"… {self._dropped} lines left out"] if self._dropped else []
        return "\n".join([*cut, *self._lines])
