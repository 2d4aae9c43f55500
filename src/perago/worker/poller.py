"""The poller: one thread that claims attempts for all idle slots of a worker.

A poll that finds work is a claim, so the poller asks for no more tasks than slots wait, each time
under a token of its own. One request tells which of the queues hold anything, so that an idle
worker with many task types makes two small requests a second.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import structlog

from perago.errors import BackendDeniedError, BackendError, BackendRefusedError
from perago.protocol.outcome import Completed, Failed, describe
from perago.protocol.ports import Delivery
from perago.retry import growing_pause

_TICK_SECONDS = 0.5
# A stop waits for the poll that is under way: its claim must not be lost.
_POLL_MS = 1000
_LOOK_SECONDS = 1.0
_FIRST_OUTAGE_PAUSE = 1.0
_LONGEST_OUTAGE_PAUSE = 15.0
# After failures that are the machine's or its servers', no attempt would fare better at once.
_FIRST_TROUBLE_PAUSE = 5.0
_LONGEST_TROUBLE_PAUSE = 60.0
# A trouble that was not seen for so long after its pause is over.
_TROUBLE_OVER_SECONDS = 600.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StopSignals:
    """How a worker is asked to stop: first no new work, then no work at all."""

    draining: Event = field(default_factory=Event)
    now: Event = field(default_factory=Event)


class SlotInbox:
    """Where the poller leaves an attempt for one slot. Once the slot has left, it takes none."""

    def __init__(self) -> None:
        self._box: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._handing = threading.Lock()
        self._left = False

    def give(self, delivery: Delivery) -> bool:
        """Leave an attempt; False when the slot is gone."""
        with self._handing:
            if self._left:
                return False
            self._box.put(delivery)
            return True

    def take(self, draining: Event) -> Delivery | None:
        """Wait for an attempt; None when the worker drains, and from then on none is taken."""
        while True:
            try:
                return self._box.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                pass
            if draining.is_set():
                with self._handing:
                    if self._box.empty():
                        self._left = True
                        return None


class Claims(Protocol):
    """What polling needs of a worker's context."""

    def poll(self, task: str, count: int, *, wait_ms: int) -> list[Delivery]: ...
    def find_waiting(self, tasks: Sequence[str]) -> list[str]: ...
    def hand_back(self, delivery: Delivery) -> None: ...
    def poll_succeeded(self) -> None: ...
    def poll_failed(self, task: str) -> None: ...


class Poller:
    """Claims attempts for the inboxes that slots offer."""

    def __init__(
        self,
        claims: Claims,
        tasks: Sequence[str],
        stops: StopSignals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims = claims
        self._tasks = list(tasks)
        self._stops = stops
        self._clock = clock
        self._idle: queue.SimpleQueue[SlotInbox] = queue.SimpleQueue()
        # Taken from there, and not yet given anything.
        self._inboxes: deque[SlotInbox] = deque()
        self._turn = -1
        # Queues that held something when they were last asked, in the order of their turns.
        self._waiting: deque[str] = deque()
        self._looked_at = float("-inf")
        self._outages = 0
        self._troubles = 0
        # The tasks that it was seen in: of the others, none tells that it is over.
        self._troubled: set[str] = set()
        self._resume_at = float("-inf")
        self._noting = threading.Lock()

    def offer(self, inbox: SlotInbox) -> None:
        """Say that a slot is idle; it gets one attempt for this."""
        self._idle.put(inbox)

    def note(self, task_type: str, ending: object) -> None:
        """Back off after a failure of the infrastructure; go on when such a task ends otherwise."""
        if not isinstance(ending, Completed | Failed):
            return
        with self._noting:
            if isinstance(ending, Completed) or not ending.is_infrastructure:
                if task_type in self._troubled:
                    self._end_trouble()
                return
            now = self._clock()
            if now > self._resume_at + _TROUBLE_OVER_SECONDS:
                self._end_trouble()
            self._troubled.add(task_type)
            if now < self._resume_at:
                return  # of the same trouble: nothing has been claimed since it began
            self._troubles += 1
            pause = growing_pause(_FIRST_TROUBLE_PAUSE, _LONGEST_TROUBLE_PAUSE, self._troubles)
            self._resume_at = now + pause
        _log.warning("polling_paused", seconds=pause, reason=ending.reason)

    def _end_trouble(self) -> None:
        self._troubles, self._resume_at = 0, float("-inf")
        self._troubled.clear()

    def run(self) -> None:
        """Run the poller's thread until the worker drains."""
        draining = self._stops.draining
        inboxes = self._inboxes
        while not draining.is_set():
            self._gather()
            if not inboxes:
                continue
            pause = self._resume_at - self._clock()
            if pause > 0:
                draining.wait(min(pause, _TICK_SECONDS))
                continue
            for delivery in self._claim(len(inboxes)):
                # The slot that became idle last: its executor may have kept what the step needs.
                self._gather()
                # What a poll claimed while the stop came goes back: nothing of it has run yet.
                if draining.is_set() or not inboxes.pop().give(delivery):
                    self._claims.hand_back(delivery)

    def _gather(self) -> None:
        """Add the inboxes of slots that became idle; wait a little for one if there is none."""
        with suppress(queue.Empty):
            while True:
                idle = self._idle.get(block=not self._inboxes, timeout=_TICK_SECONDS)
                self._inboxes.append(idle)

    def _claim(self, count: int) -> list[Delivery]:
        """Claim up to ``count`` attempts.

        A queue that holds something is asked for as many, without waiting; an empty one is waited
        for, and then asked for one: Conductor would wait until it has all.
        """
        task = self._tasks[0]
        try:
            self._look()
            while self._waiting:
                task = self._waiting[0]
                if found := self._poll(task, count, 0):
                    self._waiting.rotate(-1)
                    return found
                self._waiting.popleft()
            self._turn += 1
            task = self._tasks[self._turn % len(self._tasks)]
            found = self._poll(task, 1, _POLL_MS)
        except Exception as error:  # noqa: BLE001  no answer of a server ends the poller
            self._pause_after_outage(task, error)
            return []
        if found:
            self._waiting.append(task)
        return found

    def _poll(self, task: str, count: int, wait_ms: int) -> list[Delivery]:
        found = self._claims.poll(task, count, wait_ms=wait_ms)
        self._outages = 0
        self._claims.poll_succeeded()
        return found

    def _look(self) -> None:
        """See which queues hold anything, at most once a second.

        The first is another one each time, so that a busy queue cannot starve the others.
        """
        if len(self._tasks) == 1 or self._clock() - self._looked_at < _LOOK_SECONDS:
            return
        try:
            found = set(self._claims.find_waiting(self._tasks))
        except (BackendRefusedError, BackendDeniedError):
            found = set(self._tasks)  # a server that does not tell: ask each queue
        self._turn += 1
        start = self._turn % len(self._tasks)
        order = self._tasks[start:] + self._tasks[:start]
        self._waiting = deque(task for task in order if task in found)
        self._looked_at = self._clock()

    def _pause_after_outage(self, task: str, error: Exception) -> None:
        self._outages += 1
        self._claims.poll_failed(task)
        known = isinstance(error, BackendError)
        reason = describe(error) if known else f"{type(error).__name__}: {describe(error)}"
        _log.warning("poll_failed", task=task, reason=reason)
        pause = growing_pause(_FIRST_OUTAGE_PAUSE, _LONGEST_OUTAGE_PAUSE, self._outages)
        self._stops.draining.wait(pause)
