"""Which writes of a session failed and were not made good by a later one.

Spark's overwrite deletes before it writes: a failed one leaves a hole, which a body that goes on
would publish as if the data had been meant to go.
"""

from __future__ import annotations

import threading
from enum import IntEnum


class Effect(IntEnum):
    """What a write does to the data at its target; a higher one makes a lower one good."""

    ADDS = 0
    REPLACES_PARTITIONS = 1
    REPLACES = 2


class WriteLedger:
    """The failed writes of one execution. A target is a URI, or ``table NAME``."""

    def __init__(self) -> None:
        self._failed: dict[str, Effect] = {}
        self._lock = threading.Lock()

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
