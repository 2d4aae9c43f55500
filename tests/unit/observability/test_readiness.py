"""A worker is ready when Conductor answers its polls and the disk has room."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from perago.observability.metrics import WorkerMetrics
from perago.observability.readiness import Readiness, nearest_folder


@pytest.fixture
def metrics() -> WorkerMetrics:
    found = WorkerMetrics(["clean"])
    found.set_slots(2)
    found.poll_succeeded()
    return found


def readiness(metrics: WorkerMetrics, root: Path) -> Readiness:
    return Readiness(metrics, root, 0, lambda: True)


@pytest.fixture
def later(metrics: WorkerMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of an hour after the last poll of ``metrics``."""
    assert metrics.has_polled
    now, date = time.monotonic(), time.time()
    monkeypatch.setattr(time, "monotonic", lambda: now + 900)
    monkeypatch.setattr(time, "time", lambda: date + 900)


def test_a_worker_whose_polls_are_answered_is_ready(metrics: WorkerMetrics, tmp_path: Path) -> None:
    assert readiness(metrics, tmp_path / "not" / "there").problems() == []


def test_a_worker_that_starts_or_stops_is_not_ready(metrics: WorkerMetrics, tmp_path: Path) -> None:
    found = Readiness(metrics, tmp_path, 0, lambda: False)
    assert found.problems() == ["the worker is starting or stopping"]


def test_before_the_first_answer_to_a_poll_it_is_not_ready(tmp_path: Path) -> None:
    silent = WorkerMetrics(["clean"])
    silent.set_slots(1)
    silent.poll_failed("clean")
    assert readiness(silent, tmp_path).problems() == ["Conductor has not answered a poll yet"]


@pytest.mark.usefixtures("later")
def test_it_is_not_ready_when_no_poll_was_answered_for_long(
    metrics: WorkerMetrics, tmp_path: Path
) -> None:
    assert readiness(metrics, tmp_path).problems() == [
        "Conductor has not answered a poll for 900 s"
    ]
    metrics.poll_succeeded()
    assert readiness(metrics, tmp_path).problems() == []


@pytest.mark.usefixtures("later")
def test_a_clock_that_is_set_back_hides_no_silence(
    metrics: WorkerMetrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may start with a wrong date, which is corrected once its network is up."""
    date = time.time()
    monkeypatch.setattr(time, "time", lambda: date - 86_400)
    assert readiness(metrics, tmp_path).problems() == [
        "Conductor has not answered a poll for 900 s"
    ]


def test_a_clock_that_is_set_forward_is_no_silence(
    metrics: WorkerMetrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = time.time()
    monkeypatch.setattr(time, "time", lambda: date + 86_400)
    assert readiness(metrics, tmp_path).problems() == []


@pytest.mark.usefixtures("later")
def test_a_worker_whose_slots_are_all_busy_need_not_poll(
    metrics: WorkerMetrics, tmp_path: Path
) -> None:
    metrics.set_busy_slots(2)
    assert readiness(metrics, tmp_path).problems() == []
    # A slot that has just become idle has had no time to poll.
    metrics.set_busy_slots(1)
    assert readiness(metrics, tmp_path).problems() == []


def test_without_room_on_the_disk_it_is_not_ready(metrics: WorkerMetrics, tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    wanted = found.f_bavail * found.f_frsize * 2
    [problem] = Readiness(metrics, tmp_path, wanted, lambda: True).problems()
    assert "less than PERAGO_MIN_FREE_BYTES" in problem


def test_the_nearest_folder_is_found_above_what_cannot_be_looked_at(tmp_path: Path) -> None:
    assert nearest_folder(tmp_path / ("x" * 300) / "root") == tmp_path
