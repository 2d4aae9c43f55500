"""Signals to a supervisor at bad moments."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from perago.observability.metrics import WorkerMetrics
from perago.worker.context import WorkerContext
from perago.worker.supervisor import Supervisor
from support.memory_worker import LockedConductor

_USED = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _USED}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TimeoutError("the supervisor waits for a lock that it holds itself")


def signalled_within(event: threading.Event) -> None:
    """Have a signal come whenever the event is being set, while its lock is held."""
    lock: Any = event._cond  # type: ignore[attr-defined]
    notify_all = lock.notify_all

    def notify_all_and_more() -> None:
        signal.raise_signal(signal.SIGTERM)
        notify_all()

    lock.notify_all = notify_all_and_more


def test_a_signal_while_the_stop_begins_does_not_keep_the_worker_from_ending(
    tmp_path: Path,
) -> None:
    """Python handles signals between any two instructions of the main thread."""
    conductor: Any = LockedConductor()
    context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
    worker = Supervisor(context, [], [], slots=0, grace_seconds=1.0)
    for event in (worker._stops.draining, worker._stops.now):
        signalled_within(event)
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    signal.signal(signal.SIGTERM, worker._on_signal)
    signal.raise_signal(signal.SIGTERM)
    assert worker.run() == 0
