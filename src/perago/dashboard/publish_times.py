"""Publish times of each task as a histogram, with the line of its publish budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perago.operations.budget import PublishTimes, read_budgets, read_publish_times

WIDTH = 640.0
HEIGHT = 180.0
_LEFT, _BOTTOM, _TOP = 8.0, 24.0, 14.0
# Empty buckets that are shown on either side of what was measured.
_AROUND = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """A bucket: how many publications took longer than ``low`` and at most ``high`` seconds."""

    low: float
    high: float
    count: int
    x: float
    y: float
    width: float
    height: float

    @property
    def label(self) -> str:
        return f"{self.high:g} s" if math.isfinite(self.high) else f"over {self.low:g} s"


@dataclass(frozen=True, slots=True)
class Histogram:
    """The publish times of one task."""

    task: str
    count: int
    bars: tuple[Bar, ...]
    p99: float | None
    p99_x: float | None
    budget: float | None
    budget_x: float | None

    @property
    def words(self) -> str:
        """The histogram for people who do not see it."""
        parts = [f"{self.count} publications of {self.task}"]
        if self.p99 is not None:
            parts.append(f"99 of 100 within {self.p99:g} s")
        parts.append(
            f"the budget gives a merge {self.budget:g} s" if self.budget else "no publish budget"
        )
        return "; ".join(parts)


def build_histograms(texts: Iterable[str]) -> list[Histogram]:
    """Build the histogram of each task from the metrics of workers, added up."""
    counts: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    budgets: dict[str, float] = {}
    for text in texts:
        for task, times in read_publish_times(text).items():
            for bound, count in times.buckets:
                counts[task][bound] += count
        budgets |= read_budgets(text)
    added = {task: PublishTimes(tuple(sorted(found.items()))) for task, found in counts.items()}
    return [
        _build(task, added.get(task, PublishTimes()), budgets.get(task))
        for task in sorted({*added, *budgets})
    ]


def _build(task: str, times: PublishTimes, budget: float | None) -> Histogram:
    single = _single(times.buckets)
    shown = _shown(single, budget)
    highest = max((count for _, _, count in shown), default=0)
    width = (WIDTH - 2 * _LEFT) / max(len(shown), 1)
    bars = []
    for index, (low, high, count) in enumerate(shown):
        height = (HEIGHT - _BOTTOM - _TOP) * count / highest if highest else 0.0
        x, y = _LEFT + index * width, HEIGHT - _BOTTOM - height
        bars.append(Bar(low, high, count, x, y, width, height))
    p99 = times.p99() if times.count else None
    return Histogram(
        task,
        times.count,
        tuple(bars),
        p99 if p99 is not None and math.isfinite(p99) else None,
        _place(bars, p99),
        budget,
        _place(bars, budget),
    )


def _single(buckets: Sequence[tuple[float, int]]) -> list[tuple[float, float, int]]:
    """Each bucket by itself: Prometheus counts them one upon the other."""
    found, low, before = [], 0.0, 0
    for high, count in buckets:
        found.append((low, high, max(count - before, 0)))
        low, before = high, count
    return found


def _shown(
    single: Sequence[tuple[float, float, int]], budget: float | None
) -> Sequence[tuple[float, float, int]]:
    """The buckets that hold something or the budget, and a few around them."""
    used = [
        index
        for index, (low, high, count) in enumerate(single)
        if count or (budget is not None and low < budget <= high)
    ]
    if not used:
        return single
    return single[max(min(used) - _AROUND, 0) : max(used) + _AROUND + 1]


def _place(bars: Sequence[Bar], seconds: float | None) -> float | None:
    """Where a time is on the axis: within its bucket, in proportion."""
    if seconds is None or not math.isfinite(seconds):
        return None
    for bar in bars:
        if bar.low < seconds <= bar.high:
            part = (seconds - bar.low) / (bar.high - bar.low) if math.isfinite(bar.high) else 0.5
            return bar.x + part * bar.width
    return None
