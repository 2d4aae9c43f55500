"""A worker without servers: real slots, wardens and executors over an in-memory Conductor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from perago.observability.metrics import WorkerMetrics
from perago.protocol.identity import Claim
from perago.protocol.outcome import Outcome
from perago.protocol.ports import AttemptSnapshot, Delivery
from perago.tasks.discover import load_tasks
from perago.testing import Faults, InMemoryConductor, ManualClock, TaskSettings
from perago.testing.conductor import StoredTask
from perago.worker.context import WorkerContext
from perago.worker.poller import Poller, StopSignals
from perago.worker.slot import Slot
from support.waiting import until

TASK_MODULES = Path(__file__).parent / "task_modules"
SOURCE = Path(__file__).parents[2] / "src"


class LockedConductor:
    """An in-memory Conductor that the threads of a worker may share."""

    def __init__(self) -> None:
        self.memory = InMemoryConductor(ManualClock(), Faults())
        self._lock = threading.Lock()
        self.polls: list[str] = []
        self.looks = 0

    def poll_batch(
        self, task_type: str, token: str, count: int, *, domain: str | None = None, wait_ms: int = 0
    ) -> list[Delivery]:
        with self._lock:
            self.polls.append(task_type)
            found = self.memory.poll_batch(task_type, token, count)
        if not found and wait_ms:
            threading.Event().wait(0.05)
        return found

    def find_waiting(self, task_types: Sequence[str], *, domain: str | None = None) -> list[str]:
        self.looks += 1
        return list(task_types)

    def read(self, task_id: str) -> AttemptSnapshot:
        with self._lock:
            return self.memory.read(task_id)

    def renew(self, claim: Claim) -> None:
        with self._lock:
            self.memory.renew(claim)

    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None:
        with self._lock:
            self.memory.complete(claim, outcome, logs)

    def hand_back(self, claim: Claim) -> None:
        with self._lock:
            self.memory.hand_back(claim)

    def log(self, task_id: str, text: str) -> None:
        """Drop it."""

    def start(self, settings: TaskSettings, payload: dict[str, Any]) -> str:
        with self._lock:
            return self.memory.start(settings, payload)


class MemoryWorker:
    """Slots and a poller on threads of the test; leaving the context drains them."""

    def __init__(self, root: Path, *, slots: int = 1, executor_attempts: int = 0) -> None:
        self.conductor = LockedConductor()
        self.stops = StopSignals()
        definitions = {item.name: item for item in load_tasks(["hostile_bodies"])}
        conductor: Any = self.conductor
        self.context = WorkerContext(
            conductor,
            conductor,
            None,
            root,
            None,
            WorkerMetrics(definitions),
            executor_attempts=executor_attempts,
        )
        self.poller = Poller(self.context, list(definitions), self.stops)
        self.slots = [
            Slot(number, self.context, definitions, ["hostile_bodies"], self.stops, self.poller)
            for number in range(slots)
        ]
        runs: list[Callable[[], None]] = [self.poller.run, *(slot.run for slot in self.slots)]
        self._threads = [threading.Thread(target=run) for run in runs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        until(lambda: all(slot.is_ready for slot in self.slots), "executors to start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stops.draining.set()
        self.stops.now.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def begin(self, do: str, **params: Any) -> str:
        """Start a workflow of one task; its id."""
        payload = {"params": {"do": do, **params}}
        return self.conductor.start(TaskSettings("h_plain", retry_count=0), payload)

    def task(self, workflow: str) -> StoredTask:
        return self.conductor.memory.workflow(workflow).tasks[0]

    def finish(self, workflow: str) -> StoredTask:
        def ended() -> bool:
            return self.task(workflow).status not in {"SCHEDULED", "IN_PROGRESS"}

        until(ended, f"the end of {workflow}")
        return self.task(workflow)

    def run(self, do: str, **params: Any) -> StoredTask:
        return self.finish(self.begin(do, **params))


def prepare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and executors find the hostile tasks, and no server at all."""
    monkeypatch.syspath_prepend(str(TASK_MODULES))
    monkeypatch.setenv("PYTHONPATH", f"{SOURCE}:{TASK_MODULES}")
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("PERAGO_LOG_FORMAT", "json")
