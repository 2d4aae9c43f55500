"""Show on stderr how far something long is: a bar on a terminal, plain lines elsewhere.

rich draws the bars, without colours where ``NO_COLOR`` is set.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TextIO, cast

from perago.masking import escape_controls

Quantity = Literal["bytes", "packages", "servers"]
# Takes how much is done by now.
Advance = Callable[[int], None]
# Shows a transfer of so many bytes (None if that is not known) while its context is open.
ShowTransfer = Callable[[str, int | None], AbstractContextManager[Advance]]
# Where there is no bar: a line so often, so that a short transfer says nothing.
_SECONDS_BETWEEN_LINES = 10.0
_MEGABYTE = 1_000_000


def note(line: str) -> None:
    """Print one line of progress on stderr."""
    tell(escape_controls(line))


def tell(line: str) -> None:
    """Write one line on stderr; where that fails, the work goes on without the line."""
    stream = _Lossy(sys.stderr)
    stream.write(line + "\n")
    stream.flush()


class _Lossy:
    """A stream that loses what cannot be written, so that the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError:  # a closed terminal, a pipe without a reader, a full disk
            drop(self._stream)


def drop(stream: TextIO) -> None:
    """Forget what could not be written, which the interpreter would try again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def shown(title: str, total: int | None, quantity: Quantity) -> Iterator[Advance]:
    """Show one long piece of work with its beginning and its end."""
    began = time.monotonic()
    if _is_terminal():
        with _bar(title, total, quantity) as advance:
            yield advance
    else:
        note(f"{title} …")
        yield lambda _done: None
    note(f"{title}: done in {time.monotonic() - began:.0f} s")


@contextmanager
def transfer(title: str, total: int | None) -> Iterator[Advance]:
    """Show a transfer of so many bytes; only a long one is told of where there is no terminal."""
    if _is_terminal():
        with _bar(title, total, "bytes") as advance:
            yield advance
    else:
        yield _Lines(title, total).advance


@contextmanager
def silent(_title: str, _total: int | None) -> Iterator[Advance]:
    """Show nothing of a transfer."""
    yield lambda _done: None


class _Lines:
    """A line now and then, by whichever thread moves something at that time."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title = title
        self._of = f" of {total / _MEGABYTE:.0f}" if total is not None else ""
        self._lock = threading.Lock()
        self._told_at = time.monotonic()

    def advance(self, done: int) -> None:
        with self._lock:
            if time.monotonic() - self._told_at < _SECONDS_BETWEEN_LINES:
                return
            self._told_at = time.monotonic()
        note(f"{self._title}: {done / _MEGABYTE:.0f}{self._of} MB")


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def _bar(title: str, total: int | None, quantity: Quantity) -> Iterator[Advance]:
    # Imported here: a plain log does not need it.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    amount = DownloadColumn() if quantity == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn())
    console = Console(file=cast("TextIO", _Lossy(sys.stderr)))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(escape(escape_controls(title)), total=total)
        # The measured amount may exceed an estimated total; the bar must not.
        most = float("inf") if total is None else total
        yield lambda done: progress.update(task, completed=min(done, most))
