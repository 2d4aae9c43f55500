"""Which writes of a session are under way, and which failed and were not made good by a later one.

Spark's overwrite deletes before it writes: a failed one leaves a hole, which a body that goes on
would publish as if the data had been meant to go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from perago.errors import UnfinishedOperationError


class Effect(IntEnum):
    """What a write does to the data at its target; a higher one makes a lower one good."""

    ADDS = 0
    REPLACES_PARTITIONS = 1
    REPLACES = 2


class WriteLedger:
    """The writes of one execution. A target is a URI, or ``table NAME``."""

    def __init__(self) -> None:
        self._failed: dict[str, Effect] = {}
        self._under_way = 0
        self._is_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count a write while it lasts; raise ``UnfinishedOperationError`` once it is too late."""
        with self._lock:
            if self._is_closed:
                raise UnfinishedOperationError(
                    "the body has returned: a thread that it left cannot write any more"
                )
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def close(self) -> int:
        """Refuse all further writes; return how many are under way.

        A write that began before, and one that would begin during the publication, would be
        published in part.
        """
        with self._lock:
            self._is_closed = True
            return self._under_way

    def failed(self, target: str, effect: Effect) -> None:
        with self._lock:
            before = self._failed.get(target, Effect.ADDS)
            self._failed[target] = max(effect, before)

    def succeeded(self, target: str, effect: Effect) -> None:
        """Forget the failed writes that this one makes good.

        After a failed overwrite an append does not: what was deleted is still missing.
        """
        with self._lock:
            self._failed = {
                other: failed
                for other, failed in self._failed.items()
                if not _makes_good(target, effect, other, failed)
            }

    def open(self) -> list[str]:
        """Return the targets whose last write failed."""
        with self._lock:
            return sorted(self._failed)


def _makes_good(target: str, effect: Effect, other: str, failed: Effect) -> bool:
    if effect is Effect.REPLACES and other.startswith(f"{target}/"):
        return True  # what lies below was deleted with the rest
    return other == target and effect >= failed
