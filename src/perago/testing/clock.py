"""A clock that moves only when a test moves it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements the protocol's ``Clock``. Sleeping moves the clock and never waits.

    Actions planned with :meth:`call_later` run when the clock passes their time, in order. With
    them a simulation lets something happen while a call sleeps.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def today(self) -> str:
        return (_START + timedelta(seconds=self._now)).strftime("%Y%m%d")

    @property
    def milliseconds(self) -> int:
        """The wall clock in milliseconds, as servers record it."""
        return int(_START.timestamp() * 1000) + round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Move the clock, and run the actions that were planned for the time that passes."""
        end = self._now + max(seconds, 0.0)
        while self._planned and self._planned[0][0] <= end:
            at, _, action = heapq.heappop(self._planned)
            self._now = max(self._now, at)
            action()
        # An action may itself have moved the clock.
        self._now = max(self._now, end)

    def call_later(self, seconds: float, action: Callable[[], object]) -> None:
        """Plan an action for ``seconds`` from now."""
        heapq.heappush(self._planned, (self._now + seconds, next(self._order), action))
