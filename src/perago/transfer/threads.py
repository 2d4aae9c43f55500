"""Threads that move objects: the first error ends all of them, and their memory is bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

# Memory for one object while it moves: a few pieces of a large one, read ahead and being hashed.
_MAX_PER_OBJECT = 48 << 20
# Memory for all objects that move. A client that joins pieces needs at most as much again.
_MAX_IN_MEMORY = 96 << 20

Item = TypeVar("Item")


def run_over(
    items: Iterable[Item],
    work: Callable[[Item], None],
    threads: int,
    on_error: Callable[[], None] = lambda: None,
) -> None:
    """Call ``work`` for each item, in threads. The first error stops the rest and is raised.

    ``on_error`` is called after each error, to end what other threads do or wait for.

    The threads read the iterable themselves, so that a million items never become a million
    futures. All threads have ended on return, also when the calling thread is interrupted.
    """
    source = iter(items)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def pull() -> None:
        while not errors:
            try:
                with lock:
                    item = next(source)
            except StopIteration:
                return
            except BaseException as error:  # noqa: BLE001  raised by the caller's thread
                errors.append(error)
                return
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001  raised by the caller's thread
                errors.append(error)
                on_error()

    pullers = [threading.Thread(target=pull, name="perago-transfer") for _ in range(threads)]
    started: list[threading.Thread] = []
    try:
        for puller in pullers:
            puller.start()
            started.append(puller)
        for puller in started:
            puller.join()
    except BaseException as error:
        errors.append(error)
        on_error()
        for puller in started:
            puller.join()
        raise
    if errors:
        raise errors[0]


class _StoppedError(Exception):
    """Another transfer failed; its error is the one that is raised."""


class ByteBudget:
    """Limits the memory of concurrent transfers: each waits until its share is free.

    No wait is endless: every holder is in a request, every request has a time limit, and the
    first that fails closes the budget, which ends all waits.
    """

    def __init__(self, limit: int = _MAX_IN_MEMORY) -> None:
        self._limit = limit
        self._taken = 0
        self._freed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        """End the waits of other threads, and what they read."""
        with self._freed:
            self._closed = True
            self._freed.notify_all()

    def guarded(self, pieces: Iterable[Item]) -> Iterator[Item]:
        """Yield pieces until the budget is closed: a large object is not read to its end then."""
        for piece in pieces:
            if self._closed:
                raise _StoppedError
            yield piece

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        """Hold what an object of ``size`` bytes needs within the block, or all that there is."""
        amount = min(size, _MAX_PER_OBJECT, self._limit)
        with self._freed:
            self._freed.wait_for(lambda: self._closed or self._taken + amount <= self._limit)
            if self._closed:
                raise _StoppedError
            self._taken += amount
        try:
            yield
        finally:
            with self._freed:
                self._taken -= amount
                self._freed.notify_all()
