"""The supervisor: starts slots, listens to signals, drains, and says what was left undone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import structlog

from perago.observability.running import RunningView
from perago.signals import heeded_stops
from perago.tasks.definition import TaskDefinition
from perago.worker.context import WorkerContext
from perago.worker.poller import Poller, StopSignals
from perago.worker.slot import Slot

_TICK_SECONDS = 0.2
_TELL_SECONDS = 5.0
_RESTART_SECONDS = 1.0
# After the grace, slots stop their executors or wait for a publish phase; both are bounded.
LAST_SECONDS = 330.0
_log = structlog.get_logger(__name__)


class Supervisor:
    """One worker: N slots, each a thread with an executor process of its own."""

    def __init__(
        self,
        context: WorkerContext,
        definitions: Sequence[TaskDefinition],
        targets: Sequence[str],
        *,
        slots: int,
        grace_seconds: float,
    ) -> None:
        self._context = context
        self._grace = grace_seconds
        self._stops = StopSignals()
        self._signals = 0
        by_name = {definition.name: definition for definition in definitions}
        self._tasks = list(by_name)
        poller = Poller(context, self._tasks, self._stops)
        self._slots = [
            Slot(number, context, by_name, targets, self._stops, poller) for number in range(slots)
        ]
        # The poller first: at the end, what it has claimed is given to a slot or handed back.
        self._threads = [
            threading.Thread(target=self._keep_running, args=(run,), name=name)
            for name, run in (
                ("perago-poller", poller.run),
                *((f"perago-slot-{n}", slot.run) for n, slot in enumerate(self._slots)),
            )
        ]
        self._broken = threading.Event()

    @property
    def is_ready(self) -> bool:
        """Whether every slot has an executor and nothing stops."""
        return not self._stops.draining.is_set() and all(slot.is_ready for slot in self._slots)

    def running(self) -> list[RunningView]:
        """The attempts under way; may be called from any thread."""
        found = ((slot.number, slot.running) for slot in self._slots)
        return [item.view(number) for number, item in found if item is not None]

    def run(self, addresses: Mapping[str, str] | None = None) -> int:
        """Work until a signal comes and everything is settled; the exit code.

        ``addresses``: where the servers and the dashboard are, by name, for the log.
        """
        for number in heeded_stops():
            signal.signal(number, self._on_signal)
        self._context.metrics.set_slots(len(self._slots))
        self._context.metrics.watch_age(self._oldest_seconds)
        for thread in self._threads:
            thread.start()
        _log.info("worker_started", slots=len(self._slots), tasks=self._tasks, **(addresses or {}))
        while not self._signals:
            time.sleep(_TICK_SECONDS)
        self._stops.draining.set()
        self._drain()
        code = 1 if self._broken.is_set() or self._context.lost.is_set() else 0
        _log.info("worker_stopped", exit_code=code)
        return code

    def _oldest_seconds(self) -> float:
        """The age of the attempt that has been running for the longest time."""
        running = [slot.running for slot in self._slots]
        now = time.monotonic()
        return max((now - item.started for item in running if item is not None), default=0.0)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Only counted: what it interrupts may be setting an event, and then holds the event's lock.
        # The kernel and the shell both tell of a closed terminal: that is one request to stop.
        if number != signal.SIGHUP or not self._signals:
            self._signals += 1

    def _drain(self) -> None:
        """Wait for what runs, under lease, up to the grace; then stop it."""
        deadline = time.monotonic() + self._grace
        told_at = 0.0
        while self._alive() and self._signals < 2 and time.monotonic() < deadline:
            if time.monotonic() - told_at >= _TELL_SECONDS:
                told_at = time.monotonic()
                self._tell_what_it_waits_for(deadline - told_at)
            time.sleep(_TICK_SECONDS)
        self._stops.now.set()
        last = time.monotonic() + LAST_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, last - time.monotonic()))
        if self._alive():
            self._broken.set()
            _log.error("slots_do_not_end", slots=len(self._alive()))

    def _alive(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def _tell_what_it_waits_for(self, seconds_left: float) -> None:
        running = [slot.running for slot in self._slots]
        waiting = [
            f"{item.definition.name} {item.execution.attempt.task_id} ({item.phase})"
            for item in running
            if item is not None
        ]
        if waiting:
            _log.info("draining", waiting_for=waiting, grace_seconds_left=round(seconds_left))

    def _keep_running(self, run: Callable[[], None]) -> None:
        """Run a slot or the poller; one that fails is started again, so that the others go on."""
        while True:
            try:
                return run()
            except Exception:  # noqa: BLE001  what an attempt causes is handled with it
                _log.exception("slot_broken")
                if self._stops.draining.wait(_RESTART_SECONDS):
                    self._broken.set()  # nothing comes after it that could make it good
                    return None
