"""Run a function over many items on a few threads, with a bounded queue: none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def run_over(items: Iterable[Item], work: Callable[[Item], None], threads: int) -> None:
    """Call ``work`` for each item. The first error stops the rest and is raised.

    Threads pull from the iterable themselves, so that a million items never become a million
    futures.
    """
    source = iter(items)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def pull() -> None:
        while not errors:
            with lock:
                try:
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
    for puller in pullers:
        puller.start()
    for puller in pullers:
        puller.join()
    if errors:
        raise errors[0]
