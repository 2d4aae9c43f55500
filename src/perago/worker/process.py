"""One executor process, as its supervisor holds it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from perago.masking import environment_with_secrets
from perago.worker.channel import Channel, ChannelClosedError, Ready

_START_SECONDS = 120.0
_END_SECONDS = 10.0
# The line closes a moment before the process is gone.
_LAST_BREATH_SECONDS = 2.0


class ExecutorProcess:
    """Starts an executor in a process group of its own, and ends that whole group."""

    def __init__(self, targets: Sequence[str], *, moves_on_spark: bool = False) -> None:
        ours, theirs = socket.socketpair()
        engine = "spark" if moves_on_spark else "alone"
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "perago.worker.executor"),
                    *(str(theirs.fileno()), engine, *targets),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment_with_secrets(),
                start_new_session=True,
            )
        self.channel = Channel(ours)
        self._deadline = time.monotonic() + _START_SECONDS

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_ready(self, timeout: float) -> bool:
        """Wait a little for the executor's first word; raises when it never comes."""
        message = self.channel.receive(timeout)
        if message is None and time.monotonic() > self._deadline:
            raise ChannelClosedError(f"not ready after {_START_SECONDS:.0f} s")
        if message is None and not self.is_alive():
            raise ChannelClosedError("ended before it was ready")
        return isinstance(message, Ready)

    def is_alive(self) -> bool:
        # Without reaping it: while the process is a zombie, its group's number is not reused.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, flags) is None
        except ChildProcessError:
            return False

    def reap(self) -> str:
        """The line closed: end what is left of the group, and say how the executor ended."""
        deadline = time.monotonic() + _LAST_BREATH_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        by_itself = not self.is_alive()
        self.kill()
        code = self._process.returncode
        return describe_exit(code) if by_itself and code is not None else "stopped answering"

    def kill(self) -> None:
        """End the executor and everything its bodies started, and wait until they are gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        while self._group_exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.channel.close()

    def _group_exists(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
