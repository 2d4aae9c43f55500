"""Start servers that end with their parent process, also when the parent is killed.

Written by hand, because the usual means are not enough. ``PR_SET_PDEATHSIG`` exists on Linux only,
fires when the *thread* that forked ends, and is lost in scripts that fork again. Exit handlers do
not run on ``kill -9``. The kernel closes a pipe in every case, so a watchdog process, detached from
the terminal, reads one and ends the servers when it closes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perago.servers.process import GRACE_SECONDS, KILL_SECONDS

_REGISTER_AND_EXEC = Path(__file__).with_name("register_and_exec.py")
_PACKAGE_ROOT = Path(__file__).parents[2]


class Watchdog:
    """The parent's side: starts servers that register with the watchdog process before they run."""

    def __init__(self, log: Path) -> None:
        reading, self._pipe = os.pipe()
        path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        try:
            with log.open("ab") as output:
                # Detached (setsid): Ctrl-C and a closed terminal must not reach the watchdog.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "perago.servers.watchdog_main"],
                    stdin=reading,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)

    def spawn(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a server detached from the terminal, its output appended to ``log``."""
        register = [sys.executable, "-I", "-S", str(_REGISTER_AND_EXEC), str(self._pipe)]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*register, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                cwd=cwd,
                pass_fds=[self._pipe],
                start_new_session=True,
            )

    def remove_at_end(self, directory: Path) -> None:
        """Have the watchdog also remove ``directory`` when this process is killed."""
        os.write(self._pipe, f"remove {directory}\n".encode())

    def release(self) -> None:
        """Leave the servers running after this process, and end the watchdog."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, b"release\n")
        os.close(self._pipe)
        try:
            self._process.wait(GRACE_SECONDS + KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
