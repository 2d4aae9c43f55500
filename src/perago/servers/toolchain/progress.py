"""Show the progress of a long step on stderr: a bar on a terminal, one plain line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Measure = Literal["bytes", "packages"]
Advance = Callable[[int], None]


def note(line: str) -> None:
    """Print one line of progress on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def step(title: str, total: int, unit: Measure) -> Iterator[Advance]:
    """Show one long step; yields the function that reports how much is done."""
    began = time.monotonic()
    if sys.stderr.isatty():
        with _bar(title, total, unit) as advance:
            yield advance
    else:
        note(f"{title} …")
        yield lambda _done: None
    note(f"{title}: done in {time.monotonic() - began:.0f} s")


@contextmanager
def _bar(title: str, total: int, unit: Measure) -> Iterator[Advance]:
    # Imported here: a plain log does not need it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        # The measured amount may exceed an estimated total; the bar must not.
        yield lambda done: progress.update(task, completed=min(done, total))
