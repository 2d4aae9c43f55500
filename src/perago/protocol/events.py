"""One structured event per phase of an attempt; logs, task log and metrics are made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from perago.protocol.ports import Clock


@dataclass(frozen=True, slots=True)
class PhaseEvent:
    """A phase began or ended, or something worth saying happened within one."""

    action: str
    phase: str
    seconds: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


def describe_progress(event: PhaseEvent) -> str:
    """What a body told with ``progress(done, total)``, for people."""
    done, total = event.details.get("done"), event.details.get("total")
    return f"progress: {done}" if total is None else f"progress: {done} of {total}"


# What an operator should see: logged as warnings, and kept in the task log.
WARNINGS = frozenset(
    {
        "guardrail_warned",
        "publication_replaced",
        "licence_withdrawn",
        "reply_lost",
        "result_masked",
        "staging_cleanup_failed",
    }
)

EventSink = Callable[[PhaseEvent], None]


class Phases:
    """Times phases and tells the sink about them."""

    def __init__(self, sink: EventSink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._current = "attempt"

    @contextmanager
    def __call__(self, phase: str) -> Iterator[dict[str, Any]]:
        """Run a phase; what the block puts into the yielded dict goes into the event."""
        outer, self._current = self._current, phase
        details: dict[str, Any] = {}
        started = self._clock.monotonic()
        self._sink(PhaseEvent("phase_started", phase))
        try:
            yield details
        except BaseException as error:
            details["error"] = type(error).__name__
            self._end("phase_failed", phase, started, details)
            raise
        else:
            self._end("phase_ended", phase, started, details)
        finally:
            self._current = outer

    def report(self, action: str, **details: Any) -> None:
        """Report something that happened inside the current phase."""
        self._sink(PhaseEvent(action, self._current, None, details))

    def _end(self, action: str, phase: str, started: float, details: dict[str, Any]) -> None:
        self._sink(PhaseEvent(action, phase, self._clock.monotonic() - started, details))
