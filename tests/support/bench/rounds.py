"""Rounds: each contestant once per round, in turns, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from support.bench.table import OURS

# Does one round, and returns what it measured, by aspect: seconds, if nothing else is said.
Contestant = Callable[[int], Mapping[str, float]]
# Of one aspect: the values of each contestant, one per round.
Samples = dict[str, list[float]]
_ZEROS = bytes(1 << 20)


class PeerError(Exception):
    """A peer cannot be had, or does not do its part; the others are measured without it."""


class Value(BaseModel):
    """A median, or a ratio of two medians, with the smallest and the largest of the rounds."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass
class Contest:
    """What rounds have measured: by aspect, and within it by contestant."""

    samples: dict[str, Samples] = field(default_factory=dict)
    # Who is missing, and why.
    absent: dict[str, str] = field(default_factory=dict)

    def middle(self, aspect: str, contestant: str) -> Value:
        """The median of one contestant."""
        return middle(self.samples[aspect][contestant])

    def ratio(self, one: str, other: str, aspect: str, beside: str | None = None) -> Value | None:
        """How many times one contestant's value is another's; None where one is missing.

        ``beside`` is the aspect of the other one, where it is not the same.
        """
        above = self.samples.get(aspect, {}).get(one)
        below = self.samples.get(beside or aspect, {}).get(other)
        return ratio(above, below) if above and below else None

    def merge(self, prefix: str, other: Contest) -> None:
        """Take the samples of another contest over, its aspects renamed."""
        self.samples.update({f"{prefix}{name}": found for name, found in other.samples.items()})
        self.absent.update(other.absent)


def middle(values: Sequence[float]) -> Value:
    """The median and the spread of some values."""
    return Value(value=statistics.median(values), low=min(values), high=max(values))


def ratio(above: Sequence[float], below: Sequence[float]) -> Value:
    """The ratio of two medians; its spread is that of the ratios of the single rounds."""
    each = [one / other for one, other in zip(above, below, strict=True)]
    found = statistics.median(above) / statistics.median(below)
    return Value(value=found, low=min(*each, found), high=max(*each, found))


def level_memory(folder: Path, size: int) -> None:
    """Use so much memory for files, and free it: right before a job that needs as much.

    The host of a virtual machine may take free memory back, and then who uses it first waits for
    it: several seconds for a gigabyte, which would count for whoever happens to come first.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for start in range(0, size, len(_ZEROS)):
            file.write(_ZEROS[: size - start])


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def orders(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """The order of each round: another one begins each time, as what comes later finds warm caches.

    >>> list(orders(["a", "b"], 3))
    [['a', 'b'], ['b', 'a'], ['a', 'b']]
    """
    for turn in range(rounds):
        first = turn % len(names)
        yield [*names[first:], *names[:first]]


def hold(rounds: int, contestants: Mapping[str, Contestant], *, warm_up: bool = False) -> Contest:
    """Let all contestants do a number of rounds.

    ``warm_up``: each does one more before, numbered -1, which does not count. A peer that raises
    anything is out, with what it did in earlier rounds; an error of ours ends the rounds.
    """
    contest, left = Contest(), dict(contestants)
    for number, order in enumerate(orders(list(contestants), rounds + warm_up), -int(warm_up)):
        for name in order:
            if name not in left:
                continue
            try:
                found = left[name](number)
            except Exception as error:
                if name.startswith(OURS):
                    raise
                contest.absent[name] = reason_of(error)
                del left[name]
                continue
            if number >= 0:
                for aspect, value in found.items():
                    contest.samples.setdefault(aspect, {}).setdefault(name, []).append(value)
    # In the order in which they were named, whoever was the first of a round.
    contest.samples = {
        aspect: {name: found[name] for name in left if name in found}
        for aspect, found in contest.samples.items()
    }
    return contest


def reason_of(error: Exception) -> str:
    """Why a peer is missing; of an error that nobody foresaw also its kind."""
    return str(error) if isinstance(error, PeerError) else f"{type(error).__name__}: {error}"
