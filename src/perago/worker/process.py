"""One executor process with its warden, as its supervisor starts, replaces and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache

import structlog

from perago.masking import environment_with_secrets
from perago.protocol.identity import Execution
from perago.retry import growing_pause
from perago.transfer.sweep import clear, clear_kept
from perago.worker import cgroups
from perago.worker.channel import Channel, ChannelClosedError, Ready
from perago.worker.context import WorkerContext
from perago.worker.output import TaskOutput

_START_SECONDS = 120.0
# A warden that was asked to end kills, reaps and ends; it has ten seconds for that.
_END_SECONDS = 15.0
# The line closes a moment before everything is gone.
_CLOSING_SECONDS = 5.0
_TICK_SECONDS = 0.1
# After an outcome, a slot does not wait longer for what is left of its attempt's directory.
_REMOVAL_SECONDS = 60.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_log = structlog.get_logger(__name__)


class ExecutorProcess:
    """Starts an executor below a warden, and ends both with everything that bodies started."""

    def __init__(self, targets: Sequence[str], *, moves_on_spark: bool = False) -> None:
        self._group = cgroups.make()
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            # Last of all: a warden that has started ends with its line, and all below it.
            ours.callback(self._end_group)
            line, their_line = socket.socketpair()
            ours.callback(line.close)
            theirs.callback(their_line.close)
            life, self._life = _pipe(theirs, ours)
            output, their_output = _pipe(ours, theirs)
            log = os.dup(2)
            theirs.callback(os.close, log)
            given = [their_line.fileno(), life, log]
            engine = "spark" if moves_on_spark else "alone"
            self._warden = subprocess.Popen(
                [
                    *(sys.executable, "-m", "perago.worker.warden", *map(str, given)),
                    *(str(self._group or ""), engine, *targets),
                ],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                env=environment_with_secrets(),
                stdout=their_output,
                stderr=their_output,
                start_new_session=True,
            )
            self.channel = Channel(line)
            self.output = TaskOutput(output)
            ours.pop_all()  # they stay open as long as the executor
        # Of the executor itself, once it has said so.
        self.pid = self._warden.pid
        self._deadline = time.monotonic() + _START_SECONDS

    def is_ready(self, timeout: float) -> bool:
        """Wait a little for the executor's first word; raises when it never comes."""
        message = self.channel.receive(timeout)
        if isinstance(message, Ready):
            self.pid = message.pid
            if message.lacks:
                _say_what_is_missing(message.lacks)
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
            self._warden.wait(_CLOSING_SECONDS)
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
        self._end_group()
        self.channel.close()

    def _end_group(self) -> None:
        """End what a warden that was itself killed has left."""
        if self._group is not None and not cgroups.end(self._group):
            _log.warning("processes_remain", group=str(self._group))


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Open a pipe whose ends are closed with a stack each."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


@cache
def _say_what_is_missing(lacks: tuple[str, ...]) -> None:
    """Say it once, not for every executor."""
    _log.warning("kernel_support_missing", lacks=list(lacks))


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


class LiveExecutor:
    """One slot's executor: started when it is needed, and again when it died or is worn out."""

    def __init__(
        self, slot: int, context: WorkerContext, targets: Sequence[str], draining: threading.Event
    ) -> None:
        self._slot = slot
        self._context = context
        self._targets = targets
        self._draining = draining
        self._process: ExecutorProcess | None = None
        self._deaths = 0
        self._attempts = 0

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def find(self) -> ExecutorProcess | None:
        """The process if it lives, else a new one; None if it has none and the worker drains."""
        if self._process is not None and not self._process.is_alive():
            _log.error("executor_died_idle", slot=self._slot, how=self.note_death(self._process))
        return self._process or self._start()

    def end(self) -> None:
        """End the process with everything that its bodies started."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._clear_kept(process)

    def note_death(self, process: ExecutorProcess) -> str:
        """Count a death, and say how the process ended."""
        self._process = None
        self._deaths += 1
        how = process.reap()
        self._clear_kept(process)
        return how

    def remove_rest(self, execution: Execution) -> None:
        """Remove what the executor did not in its time: very large directories."""
        try:
            clear(self._context.root, execution, removal_seconds=_REMOVAL_SECONDS)
        except Exception:  # noqa: BLE001  what is left is swept at the next start
            _log.exception("slot_failed", slot=self._slot)
        if self._process is not None:
            # What it still keeps is locked, and not waited for.
            self._clear_kept(self._process, seconds=0.0, removal_seconds=_REMOVAL_SECONDS)

    def _clear_kept(self, process: ExecutorProcess, **limits: float) -> None:
        try:
            clear_kept(self._context.root, process.pid, **limits)
        except Exception:  # noqa: BLE001  as above
            _log.exception("slot_failed", slot=self._slot)

    def note_outcome(self) -> None:
        """An attempt reached its outcome: deaths before it are not in a row with later ones."""
        self._deaths = 0

    def note_attempt(self) -> None:
        """Count an attempt, and end a process that has run its number: leaks end with it."""
        self._attempts += 1
        if self._process is not None and self._attempts >= self._context.executor_attempts > 0:
            _log.info("executor_recycled", slot=self._slot, attempts=self._attempts)
            self.end()

    def _start(self) -> ExecutorProcess | None:
        """Start one, after a pause that grows with each death in a row."""
        if self._deaths:
            self._context.metrics.executor_restarted()
        if self._draining.wait(pause_after(self._deaths)):
            return None
        process = None
        try:
            process = ExecutorProcess(self._targets, moves_on_spark=self._context.moves_on_spark)
            while not process.is_ready(_TICK_SECONDS):
                if self._draining.is_set():
                    process.kill()
                    return None
        except (ChannelClosedError, OSError) as error:
            self._deaths += 1
            how = process.reap() if process is not None else "could not be started"
            _log.error("executor_not_started", slot=self._slot, reason=str(error), how=how)
            return None
        _log.info("executor_started", slot=self._slot, pid=process.pid)
        self._process = process
        self._attempts = 0
        return process


def pause_after(deaths: int) -> float:
    """Seconds to wait before the next executor, after so many deaths in a row."""
    return growing_pause(_FIRST_PAUSE, _LONGEST_PAUSE, deaths) if deaths else 0.0
