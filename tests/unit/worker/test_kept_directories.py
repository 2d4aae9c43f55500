"""The supervisor removes what an executor kept, when it is gone and when it left it."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from perago.transfer.workspaces import local_directory
from support.executions import an_execution
from support.memory_worker import MemoryWorker, prepare_environment
from support.waiting import until

pytestmark = pytest.mark.timeout(120)


def kept_by(pid: int, root: Path) -> Path:
    """A directory that an executor has kept, whose lock nobody holds."""
    folder = root / f".new-kept-{pid}-exec-1"
    (folder / "data").mkdir(parents=True)
    with local_directory(root, an_execution()) as made:
        for name in (".perago-attempt.json", ".perago-lock"):
            (folder / name).write_bytes((made.path / name).read_bytes())
    return folder


def executor_of(worker: MemoryWorker) -> int:
    process = worker.slots[0]._executor._process
    assert process is not None
    return process.pid


def test_it_goes_with_its_executor_and_with_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_environment(monkeypatch)
    with MemoryWorker(tmp_path) as worker:
        first = executor_of(worker)
        folder = kept_by(first, tmp_path)
        os.kill(first, signal.SIGKILL)
        assert worker.run("return").status == "COMPLETED"
        assert not folder.exists()
        folder = kept_by(executor_of(worker), tmp_path)
        others = kept_by(first, tmp_path)
    assert not folder.exists()
    assert others.exists()


def test_what_it_could_not_remove_in_its_time_goes_after_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_environment(monkeypatch)
    with MemoryWorker(tmp_path) as worker:
        folder = kept_by(executor_of(worker), tmp_path)
        held = (folder / ".perago-lock").open("rb")
        fcntl.flock(held, fcntl.LOCK_EX)
        assert worker.run("return").status == "COMPLETED"
        assert folder.exists()  # the executor still holds it
        held.close()
        assert worker.run("return").status == "COMPLETED"
        until(lambda: not folder.exists(), "the rest to be removed")
