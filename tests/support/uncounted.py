"""Tests whose lines are not counted: they run the same ones thousands of times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coverage import Coverage


@contextmanager
def uncounted() -> Iterator[None]:
    """Let coverage of this process, where it is measured, pause.

    A worker of pytest-xdist has two: its own, and one of every process that a measured one starts.
    To stop the one lets the other go on.
    """
    stopped: list[Coverage] = []
    while (counting := Coverage.current()) is not None:
        counting.stop()
        stopped.append(counting)
    try:
        yield
    finally:
        for counting in reversed(stopped):
            counting.start()
