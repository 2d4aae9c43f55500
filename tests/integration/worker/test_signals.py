"""Signals to the supervisor, in each phase of an attempt."""

from __future__ import annotations

import signal

import psutil
import pytest

from support.waiting import until
from support.workers import PHASES, WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=slow),
        pytest.param(signal.SIGHUP, id="closed terminal", marks=slow),
    ],
)
def test_an_idle_worker_stops_at_once_with_0(site: WorkerSite, number: signal.Signals) -> None:
    """No slot, thread or executor keeps an idle worker from ending."""
    worker = site.start(slots=2)
    worker.signal(number)
    assert worker.wait(20) == 0
    site.assert_nothing_left()


@pytest.mark.parametrize(
    "phase",
    [pytest.param("download", marks=slow), pytest.param("staging", marks=slow), "publish"],
)
def test_sigterm_lets_an_attempt_finish(site: WorkerSite, phase: str) -> None:
    site.lakefs.hold(PHASES[phase])
    worker = site.start()
    workflow = site.workflow()
    assert site.lakefs.reached.wait(60), worker.log_text()
    worker.signal(signal.SIGTERM)
    until(lambda: worker.count("draining") > 0, "the worker to say what it waits for")
    site.lakefs.release()
    assert worker.wait() == 0
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert site.world.history()[:2] == [task["outputData"]["workspace"]["ref"], site.world.ref]
    site.world.assert_tidy()
    site.assert_nothing_left()


def test_sigterm_in_the_body_drains_under_lease(site: WorkerSite) -> None:
    """Heartbeats go on while a worker drains, so that long tasks do not time out in it."""
    worker = site.start()
    workflow = site.workflow(do="wait", signs=str(site.signs), seconds=4.0)
    site.await_body()
    worker.signal(signal.SIGTERM)
    site.go()  # the body goes on for longer than its lease
    assert worker.wait() == 0
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert site.runs() == 1
    waiting = next(line for line in worker.lines() if line.get("action") == "draining")
    assert "w_write" in waiting["waiting_for"][0]
    site.assert_nothing_left()


def test_sigterm_to_every_process_of_a_worker_drains_it(site: WorkerSite) -> None:
    """A service manager stops a worker like that."""
    worker = site.start()
    workflow = site.workflow(do="wait", signs=str(site.signs))
    site.await_body()
    family = psutil.Process(worker.pid).children(recursive=True)
    assert len(family) >= 2  # warden and executor
    for process in [psutil.Process(worker.pid), *family]:
        process.terminate()
    site.go()
    assert worker.wait() == 0
    [task] = site.finish(workflow)
    assert (task["status"], task["retryCount"]) == ("COMPLETED", 0)
    site.assert_nothing_left()


@pytest.mark.parametrize("how", ["second signal", pytest.param("grace over", marks=slow)])
def test_a_stop_hands_running_bodies_back_without_burning_a_retry(
    site: WorkerSite, how: str
) -> None:
    grace = "600" if how == "second signal" else "1"
    worker = site.start(PERAGO_SHUTDOWN_GRACE_SECONDS=grace)
    workflow = site.workflow(do="wait-first-time", signs=str(site.signs))
    site.await_body()
    worker.signal(signal.SIGINT)
    if how == "second signal":
        until(lambda: worker.count("draining") > 0, "the drain to begin")
        worker.signal(signal.SIGINT)
    assert worker.wait(30) == 0
    assert worker.count("attempt_handed_back") == 1
    site.assert_nothing_left()
    site.world.assert_untouched()

    second = site.start()
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert task["retryCount"] == 0
    assert site.runs() == 2
    assert second.stop() == 0
    site.world.assert_tidy()


@pytest.mark.parametrize("phase", [pytest.param("download", marks=slow), "staging"])
def test_a_double_signal_outside_publish_hands_back(site: WorkerSite, phase: str) -> None:
    site.lakefs.hold(PHASES[phase])
    worker = site.start()
    workflow = site.workflow()
    assert site.lakefs.reached.wait(60)
    worker.signal(signal.SIGTERM)
    until(lambda: worker.count("draining") > 0, "the drain to begin")
    worker.signal(signal.SIGTERM)
    until(lambda: worker.count("attempt_stopped") > 0, "the attempt to be stopped")
    site.lakefs.release()
    assert worker.wait(30) == 0
    site.world.assert_untouched()
    site.world.assert_tidy()
    second = site.start()
    [task] = site.finish(workflow)
    assert (task["status"], task["retryCount"]) == ("COMPLETED", 0)
    assert second.stop() == 0
    site.assert_nothing_left()


def test_a_double_signal_in_publish_waits_for_it(site: WorkerSite) -> None:
    site.lakefs.hold(PHASES["publish"])
    worker = site.start()
    workflow = site.workflow()
    assert site.lakefs.reached.wait(60)
    worker.signal(signal.SIGTERM)
    until(lambda: worker.count("draining") > 0, "the drain to begin")
    worker.signal(signal.SIGTERM)
    with pytest.raises(AssertionError, match="did not happen"):
        until(worker.has_ended, "the worker to leave the publish phase alone", seconds=2)
    site.lakefs.release()
    assert worker.wait(30) == 0
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert worker.count("attempt_handed_back") == 0
    site.world.assert_tidy()
    site.assert_nothing_left()


def test_children_of_a_stopped_body_end_with_it(site: WorkerSite) -> None:
    worker = site.start(PERAGO_SHUTDOWN_GRACE_SECONDS="0")
    site.workflow(do="spawn-and-wait", signs=str(site.signs))
    site.await_body()
    [executor] = worker.executors()
    children = until(lambda: psutil.Process(executor).children(), "the body's child to start")
    assert worker.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    site.assert_nothing_left()
