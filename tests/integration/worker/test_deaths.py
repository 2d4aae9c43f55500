"""Executors and supervisors that die, in each phase of an attempt."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from support.real_world import SEED
from support.waiting import until
from support.workers import PHASES, Worker, WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]

PUBLISHED = {**SEED, "data/out.txt": "new"}


# The end of a process is the same in each phase; what it may leave is most in the last.
IN_EACH_PHASE = pytest.mark.parametrize(
    "phase",
    [
        "publish",
        *[pytest.param(phase, marks=pytest.mark.slow) for phase in ("download", "body", "staging")],
    ],
)


def hold_in(site: WorkerSite, phase: str) -> tuple[Worker, str]:
    """A worker with one attempt that is held in a phase."""
    if phase != "body":
        site.lakefs.hold(PHASES[phase])
    worker = site.start()
    workflow = site.workflow(do="wait-first-time" if phase == "body" else "", signs=str(site.signs))
    if phase == "body":
        site.await_body()
    else:
        assert site.lakefs.reached.wait(60), worker.log_text()
    return worker, workflow


@IN_EACH_PHASE
def test_a_killed_executor_is_reported_at_once_and_replaced(site: WorkerSite, phase: str) -> None:
    worker, workflow = hold_in(site, phase)
    [executor] = worker.executors()
    os.kill(executor, signal.SIGKILL)
    until(lambda: worker.count("attempt_failed") == 1, "the failure to be reported")
    site.lakefs.release()
    tasks = site.finish(workflow)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    reason = tasks[0]["reasonForIncompletion"]
    assert reason.startswith("ExecutorDiedError: the executor was killed by SIGKILL")
    assert site.world.contents() == PUBLISHED
    assert site.world.history()[:2] == [
        tasks[1]["outputData"]["workspace"]["ref"],
        site.world.ref,
    ]
    assert worker.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
@IN_EACH_PHASE
def test_when_the_supervisor_is_killed_its_executor_ends_and_publishes_nothing(
    site: WorkerSite, phase: str
) -> None:
    """An orphan that lived on would lose its workspace to the sweep of the next start."""
    worker, workflow = hold_in(site, phase)
    [executor] = worker.executors()
    worker.kill()
    until(lambda: not psutil.pid_exists(executor), "the orphan to end", seconds=10)
    site.lakefs.release()
    second = site.start()
    tasks = site.finish(workflow, seconds=120)
    assert [task["status"] for task in tasks] == ["TIMED_OUT", "COMPLETED"]
    assert site.world.contents() == PUBLISHED
    assert site.world.history()[:2] == [
        tasks[1]["outputData"]["workspace"]["ref"],
        site.world.ref,
    ]
    assert second.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
def test_a_supervisor_restarted_at_once_never_sweeps_a_live_workspace(site: WorkerSite) -> None:
    """An executor whose warden gets no turn to end it still holds the lock of its workspace."""
    worker, workflow = hold_in(site, "body")
    [executor] = worker.executors()
    [live] = list(site.root.iterdir())
    warden = psutil.Process(executor).ppid()
    for pid in (warden, executor):
        os.kill(pid, signal.SIGSTOP)
    worker.kill()
    second = site.start()  # which may have claimed the retry by now, in a folder of its own
    # With control groups, the new supervisor ends what the dead one left before it sweeps.
    swept = second.count("workspace_swept")
    assert live.exists() is (swept == 0)
    if not swept:
        os.kill(warden, signal.SIGCONT)
    until(lambda: not psutil.pid_exists(executor), "the orphan to end", seconds=10)
    assert live.exists() is (swept == 0)
    site.go()
    tasks = site.finish(workflow, seconds=120)
    assert tasks[-1]["status"] == "COMPLETED"
    assert site.world.contents() == PUBLISHED
    assert second.stop() == 0
    third = site.start()
    assert third.count("workspace_swept") == 1 - swept
    assert third.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
def test_a_body_that_ends_its_process_fails_the_attempt_with_its_exit_code(
    site: WorkerSite,
) -> None:
    worker = site.start()
    workflow = site.workflow(do="exit-first-time", signs=str(site.signs))
    tasks = site.finish(workflow)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    assert "exited with code 7 during body" in tasks[0]["reasonForIncompletion"]
    assert len(worker.executors()) == 2
    assert worker.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
def test_a_body_that_calls_sys_exit_fails_the_attempt_only(site: WorkerSite) -> None:
    worker = site.start()
    workflow = site.workflow("w_plain", do="sys-exit")
    tasks = site.finish(workflow)
    assert {task["status"] for task in tasks} == {"FAILED"}
    assert "sys.exit(3)" in tasks[0]["reasonForIncompletion"]
    assert worker.stop() == 0


def test_a_body_that_never_returns_is_stopped_at_its_deadline(site: WorkerSite) -> None:
    """Heartbeats alone would keep a body that hangs alive for ever."""
    worker = site.start()
    workflow = site.workflow("w_deadline", do="wait", signs=str(site.signs))
    [task] = site.finish(workflow)
    assert task["status"] == "FAILED"
    assert task["reasonForIncompletion"].startswith("BodyTimeoutError: ")
    site.world.assert_untouched()
    assert worker.stop() == 0
    site.assert_nothing_left()


def test_a_terminated_workflow_stops_the_body(site: WorkerSite) -> None:
    worker = site.start()
    workflow = site.workflow(do="wait", signs=str(site.signs))
    site.await_body()
    site.world.operate("DELETE", f"/workflow/{workflow}")
    until(lambda: worker.count("attempt_stale") == 1, "the body to be stopped")
    [task] = site.world.tasks(workflow)
    assert task["status"] == "CANCELED"
    site.world.assert_untouched()
    other = site.workflow()
    [task] = site.finish(other)
    assert task["status"] == "COMPLETED"
    assert worker.stop() == 0
    site.assert_nothing_left()


def test_an_attempt_longer_than_three_leases_completes_once(site: WorkerSite) -> None:
    worker = site.start()
    workflow = site.workflow(seconds=10.0, signs=str(site.signs))
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert site.runs() == 1
    assert worker.stop() == 0


def test_a_failure_keeps_its_traceback_and_phases_in_the_task_log(site: WorkerSite) -> None:
    """What went wrong can be read in Conductor, without the worker's own log."""
    worker = site.start()
    workflow = site.workflow(do="fail")
    tasks = site.finish(workflow)
    task_id = tasks[0]["taskId"]
    logs = site.servers.http.get(f"/tasks/{task_id}/log").raise_for_status().json()
    text = "\n".join(entry["log"] for entry in logs)
    assert "TaskFailed: on purpose" in text
    assert "in _act" in text
    assert "download" in text
    failed = [line for line in worker.lines() if line.get("action") == "attempt_failed"]
    assert "in _act" in failed[0]["trace"]
    assert failed[0]["workflow_id"] == workflow
    assert worker.stop() == 0
