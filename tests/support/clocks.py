"""A clock that only a test moves."""

from __future__ import annotations


class Clock:
    """Stands in for a module's ``time``."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now
