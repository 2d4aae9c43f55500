"""Run a function over many items on a few threads, with a bounded amount of bytes in hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def run_over(items: Iterable[Item], work: Callable[[Item], None], threads: int) -> None:
    """Call ``work`` for each item. The first error stops the rest and is raised.

    Threads pull from the iterable themselves, so that a million items never become a million
    futures. No thread is left behind, also when the calling one is interrupted.
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
        for puller in started:
            puller.join()
        raise
    if errors:
        raise errors[0]


class ByteBudget:
    """Lets transfers wait until what they hold in memory fits under a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Hold ``amount`` of the budget; more than all of it counts as all of it."""
        amount = min(amount, self._limit)
        with self._freed:
            # Bounded: whoever holds a part is in a request, and every request has a timeout.
            self._freed.wait_for(lambda: self._taken + amount <= self._limit)
            self._taken += amount
        try:
            yield
        finally:
            with self._freed:
                self._taken -= amount
                self._freed.notify_all()
