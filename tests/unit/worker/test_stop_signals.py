"""Signals to a supervisor at bad moments."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.observability.metrics import WorkerMetrics
from perago.signals import STOP_SIGNALS
from perago.worker.context import WorkerContext
from perago.worker.supervisor import Supervisor
from support.memory_worker import LockedConductor


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def signalled_within(event: threading.Event) -> None:
    """Have a signal come whenever the event is being set, while its lock is held."""
    lock: Any = event._cond  # type: ignore[attr-defined]
    notify_all = lock.notify_all

    def notify_all_and_more() -> None:
        signal.raise_signal(signal.SIGTERM)
        notify_all()

    lock.notify_all = notify_all_and_more


@pytest.mark.timeout(30)
def test_a_signal_while_the_stop_begins_does_not_keep_the_worker_from_ending(
    tmp_path: Path,
) -> None:
    """Python handles signals between any two instructions of the main thread.

    A supervisor that waits for a lock that it holds itself ends by the timeout.
    """
    conductor: Any = LockedConductor()
    context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
    worker = Supervisor(context, [], [], slots=0, grace_seconds=1.0)
    for event in (worker._stops.draining, worker._stops.now):
        signalled_within(event)
    signal.signal(signal.SIGTERM, worker._on_signal)
    signal.raise_signal(signal.SIGTERM)
    assert worker.run() == 0
