"""What an executor keeps of an attempt for its next one: used, and always removed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support import workflows
from support.waiting import until
from support.workers import Worker, WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]


def kept_folders(site: WorkerSite) -> list[Path]:
    return [path for path in site.root.iterdir() if path.name.startswith(".new-kept-")]


def run_step(site: WorkerSite, workspace: dict[str, Any], text: str) -> dict[str, Any]:
    """Run one step to its end; the workspace that it gives."""
    payload = {"workspace": workspace, "params": {"text": text}}
    # The last attempt: one that is given to an executor which has just been killed is retried.
    *_, task = site.finish(site._start([workflows.simple_task("w_write", payload)]))
    assert task["status"] == "COMPLETED", task
    found: dict[str, Any] = task["outputData"]["workspace"]
    return found


def kept_files(worker: Worker) -> list[int]:
    ended = [line for line in worker.lines() if line.get("action") == "phase_ended"]
    return [line["kept_files"] for line in ended if line["phase"] == "download"]


def test_the_next_step_takes_its_files_and_nothing_outlives_the_worker(site: WorkerSite) -> None:
    worker = site.start()
    workspace = run_step(site, site.world.workspace(), "first")
    assert len(kept_folders(site)) == 1
    workspace = run_step(site, workspace, "second")
    count = sum(path.startswith("data/") for path in site.world.contents())
    assert kept_files(worker) == [0, count]
    [executor] = worker.executors()
    os.kill(executor, signal.SIGKILL)
    run_step(site, workspace, "third")
    assert kept_files(worker) == [0, count, 0]
    [folder] = kept_folders(site)
    assert folder.name.startswith(f".new-kept-{worker.executors()[-1]}-")
    assert worker.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
def test_an_idle_executor_removes_what_it_kept(site: WorkerSite) -> None:
    worker = site.start()
    run_step(site, site.world.workspace(), "first")
    assert len(kept_folders(site)) == 1
    until(lambda: not list(site.root.iterdir()), "the executor to tidy up", seconds=30)
    worker.kill()
    assert list(site.root.iterdir()) == []


@pytest.mark.slow
def test_after_a_kill_of_all_the_next_start_sweeps_it(site: WorkerSite) -> None:
    worker = site.start()
    run_step(site, site.world.workspace(), "first")
    worker.kill()
    worker.end_all()
    assert len(kept_folders(site)) == 1
    assert site.start().stop() == 0
    site.assert_nothing_left()
