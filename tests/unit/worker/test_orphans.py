"""Ends of whole workers: a stop of every process drains, and no process outlives its worker."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago.worker import cgroups, process
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


def need_control_groups() -> None:
    group = cgroups.make()
    if group is None:
        pytest.skip("this user cannot make control groups (cgroup v2) in its own group")
    cgroups.end(group)


def group_of(warden: psutil.Process) -> Path | None:
    name = warden.cmdline()[6]
    return Path(name) if name else None


def processes_in(group: Path) -> list[int]:
    return [int(text) for text in (group / "cgroup.procs").read_text().split()]


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
        group = group_of(psutil.Process(supervisor.pid).children()[0])
    finally:
        supervisor.kill()
        supervisor.wait(10)
    until(lambda: all(map(has_ended, below)), "everything below the supervisor to end", 20)
    assert group is None or not group.exists()


@pytest.mark.parametrize("with_supervisor", [False, True], ids=["alone", "and the supervisor too"])
@pytest.mark.parametrize("kill_file", ["cgroup.kill", "not there"], ids=["new", "old kernel"])
def test_what_a_killed_warden_leaves_is_ended_by_its_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_file: str, *, with_supervisor: bool
) -> None:
    need_control_groups()
    monkeypatch.setattr(cgroups, "_KILL", kill_file)
    pids = tmp_path / "pids"
    arguments = ("leave-and-wait", str(pids), str(tmp_path / "root"), kill_file)
    supervisor = start("support.lone_supervisor", *arguments)
    try:
        until(pids.exists, "the body to begin", 90)
        [warden] = psutil.Process(supervisor.pid).children()
        executor = warden.children()[0].pid
        far = list(map(int, pids.read_text().split()))[1:]  # those with sessions of their own
        group = group_of(warden)
        assert group is not None
        assert {*far, warden.pid, executor} <= set(processes_in(group))
        if with_supervisor:
            supervisor.send_signal(signal.SIGSTOP)  # so that neither ends what the other leaves
            warden.kill()
            supervisor.kill()
            supervisor.wait(10)
            until(lambda: has_ended(executor), "the executor to end", 20)
            assert not any(map(has_ended, far))
            cgroups.sweep()  # as the next start does
        else:
            warden.kill()
        until(lambda: all(map(has_ended, far)), "what the body started to end", 20)
        until(lambda: not group.exists(), "the group to be removed", 20)
    finally:
        supervisor.kill()
        supervisor.wait(10)


def test_a_sweep_leaves_the_groups_of_supervisors_that_live() -> None:
    need_control_groups()
    group = cgroups.make()
    assert group is not None
    try:
        assert group.name not in cgroups.sweep()
        assert group.is_dir()
    finally:
        assert cgroups.end(group)


def test_a_number_that_another_process_has_now_does_not_keep_a_group() -> None:
    need_control_groups()
    mine = cgroups.make()
    assert mine is not None
    perago, space, pid, started, key = mine.name.split("-")
    old = mine.with_name("-".join((perago, space, pid, "1", key)))
    old.mkdir()
    try:
        cgroups.sweep()
        assert not old.exists()
        assert started != "1"
    finally:
        assert cgroups.end(mine)


def test_without_control_groups_there_is_none_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_PROC", tmp_path)
    assert cgroups.make() is None
    assert cgroups.sweep() == []
    assert not cgroups.join(str(tmp_path / "not there"))
    assert cgroups.end(tmp_path / "not there")


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


def test_an_executor_whose_output_cannot_be_read_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No thread can be started where a user has too many processes."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    def fail(_: int) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(process, "TaskOutput", fail)
    with pytest.raises(RuntimeError, match="new thread"):
        process.ExecutorProcess(["tasks"])
    [warden] = started
    assert warden.wait(20) is not None


@pytest.mark.parametrize("call", ["socketpair", "pipe", "dup"])
def test_an_executor_that_cannot_be_started_leaves_no_open_file(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is out of open files would else never have any again."""
    open_files = Path("/proc/self/fd")
    calls: list[str] = []
    real = os.pipe

    def fail(*_: Any) -> Any:
        calls.append(call)
        if call == "pipe" and len(calls) == 1:
            return real()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket if call == "socketpair" else os, call, fail)
    before = set(open_files.iterdir())
    with pytest.raises(OSError, match="open files"):
        process.ExecutorProcess(["tasks"])
    assert set(open_files.iterdir()) == before
