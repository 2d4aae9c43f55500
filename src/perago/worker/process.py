"""One executor process with its warden, as their supervisor holds them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import structlog

from perago.masking import environment_with_secrets
from perago.worker.channel import Channel, ChannelClosedError, Ready
from perago.worker.output import TaskOutput

_START_SECONDS = 120.0
# A warden that was asked to end kills, reaps and ends; it has ten seconds for that.
_END_SECONDS = 15.0
# The line closes a moment before everything is gone.
_LAST_BREATH_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class ExecutorProcess:
    """Starts an executor below a warden, and ends both with everything that bodies started."""

    def __init__(self, targets: Sequence[str], *, moves_on_spark: bool = False) -> None:
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        output, theirs_output = os.pipe()
        log = os.dup(2)
        engine = "spark" if moves_on_spark else "alone"
        try:
            self._warden = subprocess.Popen(
                [
                    *(sys.executable, "-m", "perago.worker.warden"),
                    *(str(theirs.fileno()), str(life), str(log), engine, *targets),
                ],
                pass_fds=[theirs.fileno(), life, log],
                stdin=subprocess.DEVNULL,
                env=environment_with_secrets(),
                stdout=theirs_output,
                stderr=theirs_output,
                start_new_session=True,
            )
        except BaseException:
            for descriptor in (self._life, output):
                os.close(descriptor)
            ours.close()
            raise
        finally:
            theirs.close()
            for descriptor in (life, theirs_output, log):
                os.close(descriptor)
        self.channel = Channel(ours)
        self.output = TaskOutput(output)
        # Of the executor itself, once it has said so.
        self.pid = self._warden.pid
        self._deadline = time.monotonic() + _START_SECONDS

    def is_ready(self, timeout: float) -> bool:
        """Wait a little for the executor's first word; raises when it never comes."""
        message = self.channel.receive(timeout)
        if isinstance(message, Ready):
            self.pid = message.pid
            if message.lacks:
                _log.warning("kernel_support_missing", lacks=list(message.lacks))
            return True
        if message is None and time.monotonic() > self._deadline:
            raise ChannelClosedError(f"not ready after {_START_SECONDS:.0f} s")
        if message is None and not self.is_alive():
            raise ChannelClosedError("ended before it was ready")
        return False

    def is_alive(self) -> bool:
        """Whether the warden runs, which ends after the executor and all below it have ended."""
        return self._warden.poll() is None

    def reap(self) -> str:
        """The line closed: wait until everything is gone, and say how the executor ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._warden.wait(_LAST_BREATH_SECONDS)
        code = self._warden.poll()
        self.kill()
        return describe_exit(code) if code is not None else "stopped answering"

    def kill(self) -> None:
        """End the executor and everything its bodies started, and wait until they are gone."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        try:
            self._warden.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # A stopped warden, or a process below it that not even SIGKILL ends.
            _log.warning("warden_does_not_end", pid=self._warden.pid)
            for end, pid in ((os.kill, self._warden.pid), (os.killpg, self.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._warden.wait(_END_SECONDS)
        self.channel.close()


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
