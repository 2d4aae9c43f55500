"""Ends of whole workers: a stop of every process drains, and no process outlives its worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.memory_worker import SOURCE, TASK_MODULES
from support.waiting import until

pytestmark = pytest.mark.timeout(180)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SOURCE}:{TASK_MODULES}:{TASK_MODULES.parents[1]}",
        "CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api",
    }
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "do",
    ["hold", "leave-and-wait"],
    ids=["while a body holds the interpreter", "with children in sessions of their own"],
)
def test_nothing_outlives_a_killed_supervisor(tmp_path: Path, do: str) -> None:
    pids = tmp_path / "pids"
    supervisor = start("support.lone_supervisor", do, str(pids), str(tmp_path / "root"))
    try:
        until(pids.exists, "the body to begin", 90)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        below = {*(process.pid for process in family), *map(int, pids.read_text().split())}
        assert len(below) >= 3  # warden, executor and what the body started
    finally:
        supervisor.kill()
        supervisor.wait(10)
    until(lambda: all(map(has_ended, below)), "everything below the supervisor to end", 20)


def test_a_stop_of_every_process_of_a_worker_drains_it(tmp_path: Path) -> None:
    pids, status = tmp_path / "pids", tmp_path / "status"
    supervisor = start(
        "support.draining_supervisor", str(pids), str(status), str(tmp_path / "root")
    )
    try:
        until(pids.exists, "the body to begin", 90)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        assert len(family) == 2  # warden and executor
        for process in [psutil.Process(supervisor.pid), *family]:
            process.terminate()
        assert supervisor.wait(60) == 0
    finally:
        supervisor.kill()
        supervisor.wait(10)
    assert status.read_text() == "COMPLETED"
    assert all(has_ended(process.pid) for process in family)
