"""Servers end with their parent, however it ends, unless they were released."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from perago.servers.process import ProcessId, end, wait_gone

# Starts one "server" on a watchdog, names it, and then does what it is told.
_PARENT = """
import os, sys, time
from pathlib import Path
from perago.servers.watchdog import Watchdog

folder = Path(sys.argv[1])
watchdog = Watchdog(folder / "watchdog.log")
(folder / "data").mkdir()
watchdog.remove_at_end(folder / "data")
command = [sys.executable, "-c", "import time; time.sleep(60)"]
server = watchdog.spawn(command, env=dict(os.environ), cwd=folder, log=folder / "server.log")
print(server.pid, flush=True)
if sys.argv[2] == "release":
    watchdog.release()
    os._exit(0)
time.sleep(60)
"""


def _start(folder: Path, then: str) -> tuple[subprocess.Popen[str], ProcessId]:
    command = [sys.executable, "-c", _PARENT, str(folder), then]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    server = ProcessId.of(int(parent.stdout.readline()))
    assert server is not None
    return parent, server


def test_a_killed_parent_takes_its_servers_and_its_data_along(tmp_path: Path) -> None:
    parent, server = _start(tmp_path, "wait")
    # At once: the server may not even have become itself yet.
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    assert wait_gone([server], 20) == []
    _await_missing(tmp_path / "data")


def test_a_released_server_lives_on(tmp_path: Path) -> None:
    parent, server = _start(tmp_path, "release")
    parent.communicate(timeout=20)
    assert wait_gone([server], 0.5) == [server]
    assert (tmp_path / "data").exists()
    assert end([server]) == []


def _await_missing(path: Path) -> None:
    deadline = time.monotonic() + 10
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.05)
