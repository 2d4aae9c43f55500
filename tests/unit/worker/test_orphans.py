"""No process outlives its worker, also when its supervisor is killed."""

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


@pytest.mark.parametrize(
    "do",
    ["hold", "leave-and-wait"],
    ids=["while a body holds the interpreter", "with children in sessions of their own"],
)
def test_nothing_outlives_a_killed_supervisor(tmp_path: Path, do: str) -> None:
    pids = tmp_path / "pids"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SOURCE}:{TASK_MODULES}:{TASK_MODULES.parents[1]}",
        "CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api",
    }
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "support.lone_supervisor", do, str(pids), str(tmp_path / "root")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(pids.exists, "the body to begin", 90)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        below = {*(process.pid for process in family), *map(int, pids.read_text().split())}
        assert len(below) >= 3  # warden, executor and what the body started
    finally:
        supervisor.kill()
        supervisor.wait(10)
    until(lambda: all(map(has_ended, below)), "everything below the supervisor to end", 20)
