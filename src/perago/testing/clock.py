"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements the protocol's ``Clock``. Sleeping is moving the clock; nothing ever waits.

    Actions planned with :meth:`call_later` run when the clock passes their time, in order: this
    is how a simulation lets something happen "meanwhile".
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
        """The wall clock, as servers stamp it."""
        return int(_START.timestamp() * 1000) + round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Move on, running what was planned for the time that passes."""
        end = self._now + max(seconds, 0.0)
        while self._planned and self._planned[0][0] <= end:
            at, _, action = heapq.heappop(self._planned)
            self._now = max(self._now, at)
            action()
        # An action may itself have moved the clock.
        self._now = max(self._now, end)

    def call_later(self, seconds: float, action: Callable[[], object]) -> None:
        """Plan an action for when the clock has moved on by ``seconds``."""
        heapq.heappush(self._planned, (self._now + seconds, next(self._order), action))
