"""What a supervisor knows of an attempt while it runs, and what it decides from it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from perago.errors import BodyTimeoutError
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.tasks.definition import TaskDefinition
from perago.worker.channel import Answer, Told
from perago.worker.office import Stopped

_LONGEST_PAUSE = 30.0
# A publish step is bounded by its own request timeouts; this is for one that hangs all the same.
_LONGEST_PUBLISH_SECONDS = 300.0
# From the fence that lets an attempt publish until its outcome, it is not stopped from outside.
_PUBLISHING = frozenset({"second_fence", "publish"})


class Pulse(Protocol):
    """As much of a heartbeat as decisions need."""

    @property
    def is_lost(self) -> bool: ...


def pause_after(deaths: int) -> float:
    """Seconds to wait before the next executor, after so many deaths in a row."""
    return min(2.0 ** (deaths - 2), _LONGEST_PAUSE) if deaths else 0.0


@dataclass(frozen=True, slots=True)
class Stops:
    """How a worker is asked to stop: first no new work, then no work at all."""

    draining: Event = field(default_factory=Event)
    now: Event = field(default_factory=Event)


@dataclass
class Watched:
    """One attempt under supervision."""

    execution: Execution
    definition: TaskDefinition
    heartbeat: Pulse
    phase: str = "attempt"
    events: list[PhaseEvent] = field(default_factory=list)
    publishing_since: float | None = None
    body_deadline: float | None = None
    uses_spark: bool = False

    def note(self, told: Told) -> PhaseEvent:
        """Keep an event, and what follows from it: the phase and the body's deadline."""
        event = PhaseEvent(told.action, told.phase, told.seconds, told.details)
        self.events.append(event)
        if told.action == "phase_started":
            self.phase = told.phase
        if told.phase == "body":
            seconds = self.definition.controls.timeout.body_seconds
            begins = told.action == "phase_started"
            self.body_deadline = time.monotonic() + seconds if begins and seconds else None
        return event

    def answer(self, stops: Stops) -> Answer:
        """May it go on past a fence? Saying yes before publishing is a promise to wait."""
        if self.heartbeat.is_lost:
            return Answer(go=False, why="its lease is lost")
        if stops.now.is_set():
            return Answer(go=False, why="the worker stops")
        if self.phase in _PUBLISHING and self.publishing_since is None:
            self.publishing_since = time.monotonic()
        return Answer(go=True)

    def reason_to_stop(self, stops: Stops) -> Stopped | BodyTimeoutError | None:
        """Why it must end now, or None."""
        now = time.monotonic()
        if self.publishing_since is not None:
            too_long = now - self.publishing_since > _LONGEST_PUBLISH_SECONDS
            return Stopped.STALE if too_long else None
        if self.heartbeat.is_lost:
            return Stopped.STALE
        if stops.now.is_set():
            return Stopped.HANDED_BACK
        if self.body_deadline is not None and now > self.body_deadline:
            seconds = self.definition.controls.timeout.body_seconds
            return BodyTimeoutError(f"the body ran longer than its deadline of {seconds:g} s")
        return None
