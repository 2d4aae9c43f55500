"""A schedule is a list of small numbers: every choice that the world makes, in order.

Zero is always the calm choice, and a schedule that ends goes on with zeros. So a schedule is made
smaller by cutting it off and by setting numbers to zero, and every smaller one can be replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Schedule = list[int]


class Choices:
    """Draws choices from a seed, or replays a schedule."""

    def __init__(self, *, seed: int | None = None, schedule: Sequence[int] = ()) -> None:
        self._random = random.Random(seed) if seed is not None else None  # noqa: S311  repeatable
        self._given = list(schedule)
        self.made: Schedule = []
        self.log: list[str] = []

    def pick(self, label: str, weights: Sequence[float]) -> int:
        """Choose one of several options; ``weights`` says how likely each is."""
        position = len(self.made)
        if self._random is not None:
            chosen = self._random.choices(range(len(weights)), weights)[0]
        else:
            given = self._given[position] if position < len(self._given) else 0
            chosen = given if given < len(weights) and weights[given] > 0 else 0
        self.made.append(chosen)
        if chosen:
            self.log.append(f"{position}: {label} = {chosen}")
        return chosen


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool], *, tries: int = 400) -> Schedule:
    """Make a failing schedule smaller, as long as it fails; at most so many tries."""
    best = _trimmed(schedule)
    size = max(len(best) // 2, 1)
    while size >= 1 and tries > 0:
        smaller = False
        for start in range(0, len(best), size):
            candidate = _trimmed([*best[:start], *([0] * size), *best[start + size :]])
            if candidate == best:
                continue
            tries -= 1
            if fails(candidate):
                best, smaller = candidate, True
                break
            if tries <= 0:
                break
        if not smaller:
            size //= 2
    return best


def _trimmed(schedule: Sequence[int]) -> Schedule:
    """Without zeros at the end, which a replay adds by itself."""
    end = len(schedule)
    while end and schedule[end - 1] == 0:
        end -= 1
    return list(schedule[:end])
