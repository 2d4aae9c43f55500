"""Tests whose lines are not counted: they run the same ones thousands of times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coverage import Coverage


@contextmanager
def uncounted() -> Iterator[None]:
    """Let coverage of this process, where it is measured, pause."""
    counting = Coverage.current()
    if counting is None:
        yield
        return
    counting.stop()
    try:
        yield
    finally:
        counting.start()
