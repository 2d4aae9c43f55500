"""A shell that is given commands as a person gives them, and the environment of a new user."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil

import perago
from support.waiting import until


def environment(folder: Path, more: dict[str, str]) -> dict[str, str]:
    """A user's, with nothing of this user's but the cache with the servers."""
    kept = ("PERAGO_CACHE", "PERAGO_MAVEN_REPOSITORY")
    own = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "SPARK_", "XDG_")
    known = {
        key: value for key, value in os.environ.items() if key in kept or not key.startswith(own)
    }
    places = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("DATA", "STATE", "CONFIG")}
    return {
        **known,
        **places,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(perago.__file__).parents[1]),
        "PERAGO_METRICS_ADDRESS": "off",
        **more,
    }


class Terminal:
    """A shell that is given one command after the other, as a person gives them."""

    def __init__(self, folder: Path, more: dict[str, str]) -> None:
        self.folder = folder
        self.output = folder / "output.txt"
        with self.output.open("w") as output:
            self._shell = subprocess.Popen(
                ["bash", "-s"],
                cwd=folder,
                env=environment(folder, more),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                bufsize=1,
            )

        # Job control, as in a terminal: a job in the background can be interrupted.
        self.give("set -m")

    def give(self, command: str, seconds: float = 110.0) -> int:
        """Give a command and wait for its end; its exit code."""
        sign = self.folder / "code"
        sign.unlink(missing_ok=True)
        assert self._shell.stdin is not None
        quoted = shlex.quote(str(sign))
        self._shell.stdin.write(f"{command}\necho $? > {quoted}.new && mv {quoted}.new {quoted}\n")
        until(lambda: sign.exists() or self._shell.poll() is not None, command, seconds)
        assert sign.exists(), self.text()
        return int(sign.read_text())

    def text(self) -> str:
        return self.output.read_text()

    def close(self) -> None:
        """End the shell and all that it started."""
        assert self._shell.stdin is not None
        shell = psutil.Process(self._shell.pid)
        started = [*shell.children(recursive=True), shell]
        for process in started:
            process.terminate()
        psutil.wait_procs(started, timeout=20)
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._shell.stdin.close()
        self._shell.wait(20)
