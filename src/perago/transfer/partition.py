"""How objects are shared out: bounded partitions, the large ones first. Pure.

In two steps, so that nobody has to hold a million objects to share them out. While objects stream
by, each gets a group; only the groups' sizes are kept. Then the groups are packed into partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransferSize:
    """How much something is to move."""

    objects: int = 0
    size: int = 0

    def __add__(self, other: TransferSize) -> TransferSize:
        return TransferSize(self.objects + other.objects, self.size + other.size)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one partition holds; an object larger than that is alone in its own.

    The defaults are large enough that what a task itself costs (a fifth of a second of a core)
    does not count, and small enough that a task that is repeated repeats little.
    """

    objects: int = 5000
    size: int = 256 << 20

    def __post_init__(self) -> None:
        if self.objects < 1 or self.size < 1:
            raise ValueError("bounds must be at least 1")

    def hold(self, load: TransferSize) -> bool:
        return load.objects <= self.objects and load.size <= self.size

    def share(self, load: TransferSize) -> float:
        """How much of the bounds a load fills: what has no bytes fills them by its number."""
        return max(load.objects / self.objects, load.size / self.size)

    def part(self, count: int) -> Bounds:
        """Bounds with ``count`` of which one fills these."""
        return Bounds(max(1, self.objects // count), max(1, self.size // count))


class Grouping:
    """Gives each object of a stream a group within the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._open: int | None = None
        self.loads: list[TransferSize] = []

    def add(self, size: int) -> int:
        """Take one object; the number of its group."""
        one = TransferSize(1, size)
        if not self._bounds.hold(one):
            # Alone; the group that is being filled stays open.
            self.loads.append(one)
            return len(self.loads) - 1
        if self._open is None or not self._bounds.hold(self.loads[self._open] + one):
            self.loads.append(TransferSize())
            self._open = len(self.loads) - 1
        self.loads[self._open] += one
        return self._open


def pack(groups: Sequence[TransferSize], bounds: Bounds) -> list[int]:
    """The partition of each group, numbered from the largest partition to the smallest.

    Each group, largest first, goes to the emptiest partition, or to a new one if it does not fit
    there. Large partitions come first because what starts last is waited for alone.
    """
    partitions: list[TransferSize] = []
    places = [0] * len(groups)
    emptiest: list[tuple[float, int]] = []
    for number in sorted(range(len(groups)), key=lambda n: (-groups[n].size, -groups[n].objects)):
        group = groups[number]
        if emptiest and bounds.hold(partitions[emptiest[0][1]] + group):
            place = emptiest[0][1]
            partitions[place] += group
            heapq.heapreplace(emptiest, (bounds.share(partitions[place]), place))
        else:
            place = len(partitions)
            partitions.append(group)
            heapq.heappush(emptiest, (bounds.share(group), place))
        places[number] = place
    order = sorted(range(len(partitions)), key=lambda n: (-partitions[n].size, n))
    rank = {place: position for position, place in enumerate(order)}
    return [rank[place] for place in places]
