"""Divide objects into bounded partitions, the large ones first. Pure.

It takes two steps, so that a million objects need not be held in memory. While objects stream by,
each is assigned to a group, and only the sizes of the groups are kept. Then the groups are packed
into partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransferSize:
    """How much there is to move: a number of objects, and their size in bytes."""

    objects: int = 0
    size: int = 0

    def __add__(self, other: TransferSize) -> TransferSize:
        return TransferSize(self.objects + other.objects, self.size + other.size)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one partition holds; an object larger than that gets a partition of its own.

    The defaults are large enough that the cost of a task (a fifth of a second of a core) does not
    matter, and small enough that a retried task repeats little.
    """

    objects: int = 5000
    size: int = 256 << 20

    def __post_init__(self) -> None:
        if self.objects < 1 or self.size < 1:
            raise ValueError("bounds must be at least 1")

    def hold(self, total: TransferSize) -> bool:
        """Return whether a size is within the bounds."""
        return total.objects <= self.objects and total.size <= self.size

    def share(self, total: TransferSize) -> float:
        """Return the fraction of the bounds that is used, by number or by bytes, the larger one."""
        return max(total.objects / self.objects, total.size / self.size)

    def part(self, count: int) -> Bounds:
        """Return smaller bounds, ``count`` of which fit into these."""
        return Bounds(max(1, self.objects // count), max(1, self.size // count))


class Grouping:
    """Assigns each object of a stream to a group within the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._max_objects, self._max_size = bounds.objects, bounds.size
        # Plain numbers: this is done for each of millions of objects.
        self._open: int | None = None
        self._objects: list[int] = []
        self._sizes: list[int] = []

    @property
    def sizes(self) -> list[TransferSize]:
        """The size of each group."""
        return list(map(TransferSize, self._objects, self._sizes))

    def add(self, size: int) -> int:
        """Add one object of ``size`` bytes; return the number of its group."""
        number = self._open
        if size > self._max_size:
            # It is alone in its group; the group that is being filled stays open.
            number = self._begin()
        elif (
            number is None
            or self._objects[number] == self._max_objects
            or self._sizes[number] + size > self._max_size
        ):
            number = self._open = self._begin()
        self._objects[number] += 1
        self._sizes[number] += size
        return number

    def _begin(self) -> int:
        self._objects.append(0)
        self._sizes.append(0)
        return len(self._sizes) - 1


def pack(groups: Sequence[TransferSize], bounds: Bounds) -> list[int]:
    """Return the partition of each group, numbered from the largest partition to the smallest.

    Each group, largest first, goes into the emptiest partition, or into a new one if it does not
    fit there. Large partitions are first because the one that starts last is waited for alone.
    """
    partitions: list[TransferSize] = []
    assigned = [0] * len(groups)
    emptiest: list[tuple[float, int]] = []
    for number in sorted(range(len(groups)), key=lambda n: (-groups[n].size, -groups[n].objects)):
        group = groups[number]
        if emptiest and bounds.hold(partitions[emptiest[0][1]] + group):
            partition = emptiest[0][1]
            partitions[partition] += group
            heapq.heapreplace(emptiest, (bounds.share(partitions[partition]), partition))
        else:
            partition = len(partitions)
            partitions.append(group)
            heapq.heappush(emptiest, (bounds.share(group), partition))
        assigned[number] = partition
    order = sorted(range(len(partitions)), key=lambda n: (-partitions[n].size, n))
    rank = {partition: position for position, partition in enumerate(order)}
    return [rank[partition] for partition in assigned]
