"""The phases of an attempt as a bar: each as long as it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perago.observability.running import RunningView
from perago.operations.attempts import Phase

WIDTH = 600.0
# So that a phase of no time can still be seen and pointed at.
_LEAST_WIDTH = 3.0
_FENCES = frozenset({"first_fence", "second_fence"})
_MOVES = frozenset({"download", "stage", "diff", "commit", "branch", "session"})
_CHECKS = frozenset(
    {"validate", "pre_guardrails", "post_guardrails", "check_result", "check_commit", "adopt"}
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One phase of the bar."""

    name: str
    seconds: float
    tone: str
    x: float
    width: float
    error: str | None = None
    details: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The phases of an attempt in their order."""

    segments: tuple[Segment, ...]
    seconds: float
    # What runs now; None for an attempt that is over.
    phase: str | None = None

    @property
    def words(self) -> str:
        """The bar for people who do not see it."""
        longest = sorted(self.segments, key=lambda it: it.seconds, reverse=True)[:3]
        parts = ", ".join(f"{it.name.replace('_', ' ')} {it.seconds:.2f} s" for it in longest)
        running = f", now in {self.phase.replace('_', ' ')}" if self.phase else ""
        return f"{len(self.segments)} phases in {self.seconds:.2f} s; longest: {parts}{running}"


def of_log(phases: Sequence[Phase]) -> Timeline | None:
    """Build the bar of an attempt that is over, from its task log."""
    found = [(it.name, it.seconds, it.error, it.text) for it in phases]
    return _build(found) if found else None


def of_running(running: RunningView) -> Timeline:
    """Build the bar of an attempt under way, from what its worker tells."""
    found = [(it.phase, it.seconds, it.error, "") for it in running.phases]
    ended = sum(seconds for _, seconds, _, _ in found)
    found.append((running.phase, max(running.seconds - ended, 0.0), None, ""))
    return _build(found, running.phase)


def _build(
    found: Sequence[tuple[str, float, str | None, str]], phase: str | None = None
) -> Timeline:
    total = sum(seconds for _, seconds, _, _ in found)
    wide = [
        max(seconds / total * WIDTH if total else 0.0, _LEAST_WIDTH) for _, seconds, _, _ in found
    ]
    scale = WIDTH / sum(wide)
    segments, x = [], 0.0
    for (name, seconds, error, details), width in zip(found, wide, strict=True):
        tone = "bad" if error else _tone(name)
        segments.append(Segment(name, seconds, tone, x, width * scale, error, details))
        x += width * scale
    return Timeline(tuple(segments), total, phase)


def _tone(phase: str) -> str:
    if phase in _FENCES:
        return "fence"
    if phase in _MOVES:
        return "move"
    if phase in _CHECKS:
        return "check"
    return phase if phase in {"body", "publish"} else "other"
