"""What a worker's log says at its start, and at the end of an attempt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perago.observability.metrics import WorkerMetrics
from perago.protocol.outcome import Completed
from perago.signals import STOP_SIGNALS
from perago.tasks.discover import load_tasks
from perago.worker import supervisor as supervisor_module
from perago.worker.context import WorkerContext, _log_outcome, note_unreadable
from perago.worker.report import Reported
from perago.worker.supervisor import Supervisor
from support.memory_worker import LockedConductor
from support.workers import TASK_MODULES


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_start_names_tasks_servers_and_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TASK_MODULES)
    conductor: Any = LockedConductor()
    definitions = load_tasks(["hostile_bodies:h_plain"])
    context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
    worker = Supervisor(context, definitions, ["hostile_bodies"], slots=0, grace_seconds=1.0)
    # So that it ends right after its start.
    worker._on_signal(signal.SIGTERM, None)
    addresses = {"conductor": "http://c/api", "dashboard": "http://127.0.0.1:9465/"}
    with capture_logs() as lines:
        assert worker.run(addresses) == 0
    assert lines == [
        {
            "event": "worker_started",
            "log_level": "info",
            "slots": 0,
            "tasks": ["h_plain"],
            "conductor": "http://c/api",
            "dashboard": "http://127.0.0.1:9465/",
        },
        {"event": "worker_stopped", "log_level": "info", "exit_code": 0},
    ]


def test_a_closed_terminal_that_is_told_of_twice_drains(tmp_path: Path) -> None:
    """By the kernel and by the shell: that is no second request."""
    conductor: Any = LockedConductor()
    context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
    worker = Supervisor(context, [], [], slots=0, grace_seconds=1.0)
    for _ in range(2):
        worker._on_signal(signal.SIGHUP, None)
    assert worker._signals == 1
    worker._on_signal(signal.SIGTERM, None)
    assert worker._signals == 2


def test_the_end_of_an_attempt_is_one_line_with_seconds_commit_and_result() -> None:
    """Task and attempt are on every line (`attempt_logs`)."""
    outcome = Completed({"workspace": {"ref": "abc"}, "result": {"rows": 3}})
    with capture_logs() as lines:
        _log_outcome(outcome, Reported.POSTED, 1.23456)
    assert lines == [
        {
            "event": "attempt_completed",
            "log_level": "info",
            "delivered": "posted",
            "seconds": 1.235,
            "commit": "abc",
            "result": '{"rows": 3}',
        }
    ]


def test_a_claimed_task_that_cannot_be_read_is_logged_and_counted() -> None:
    metrics = WorkerMetrics(["clean"])
    with capture_logs() as lines:
        note_unreadable(metrics, "clean", "task 'a' was claimed, and cannot be read")
    assert [(line["event"], line["task"]) for line in lines] == [("poll_failed", "clean")]
    assert b'perago_poll_failures_total{task="clean"} 1.0' in metrics.render()


@pytest.mark.parametrize(("drains", "code"), [(False, 0), (True, 1)])
def test_a_part_that_failed_counts_unless_it_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drains: bool, code: int
) -> None:
    """What failed while the worker stopped may have left a claim behind."""
    monkeypatch.setattr(supervisor_module, "_RESTART_SECONDS", 0.01)
    conductor: Any = LockedConductor()
    context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
    worker = Supervisor(context, [], [], slots=0, grace_seconds=1.0)
    runs = iter([LookupError("a bug"), None])

    def run() -> None:
        if (error := next(runs)) is not None:
            raise error

    if drains:
        worker._stops.draining.set()
    worker._keep_running(run)
    worker._threads.clear()
    worker._on_signal(signal.SIGTERM, None)
    assert worker.run() == code
