"""Give a worker its Spark Connect server: an external one, or a managed one that it keeps running.

A managed server is started by the first attempt that needs it. A thread starts it, watches it, and
starts it again after its death, with a pause that grows. It ends with the worker: when the
supervisor is killed, the watchdog of :mod:`perago.servers.watchdog` ends it.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from perago.errors import BackendError, BackendUnavailableError, PeragoError, ServerError
from perago.masking import remember_secret
from perago.servers import loopback
from perago.servers.server import log_path
from perago.servers.spark import ConnectServer, ConnectSettings
from perago.servers.watchdog import Watchdog
from perago.spark import child, interrupting
from perago.spark.settings import ExternalSpark, ManagedSpark

_TICK_SECONDS = 0.2
_LONGEST_PAUSE = 30.0
# The death of a server that ran this long begins a new count of deaths.
_STABLE_SECONDS = 120.0
_INTERRUPT_SECONDS = 30.0
_log = structlog.get_logger(__name__)


class SparkRuntime(Protocol):
    """Access to a worker's Connect server; safe to use from all slots' threads."""

    def remote(self, give_up: Callable[[], bool]) -> str | None:
        """Wait for the server and return its connection string; None after ``give_up``."""
        ...

    def interrupt(self, execution_id: str) -> None:
        """End an execution's Spark work; bounded in time, and never raises."""
        ...

    def close(self) -> None:
        """Stop the server, if this worker runs it."""
        ...


def open_runtime(spark: ExternalSpark | ManagedSpark) -> SparkRuntime:
    """Build the runtime for resolved settings; nothing is started yet."""
    if isinstance(spark, ExternalSpark):
        return ExternalRuntime(spark.remote.get_secret_value())
    return ManagedRuntime(spark.connect)


class ExternalRuntime:
    """An external server, run by its operator."""

    def __init__(self, remote: str) -> None:
        self._remote = remote

    def remote(self, give_up: Callable[[], bool]) -> str | None:
        return self._remote

    def interrupt(self, execution_id: str) -> None:
        _interrupt(self._remote, execution_id)

    def close(self) -> None:
        """Do nothing: an external server keeps running."""


class ManagedRuntime:
    """A managed server, run by this worker."""

    def __init__(self, settings: ConnectSettings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._remote: str | None = None
        self._failures = 0
        self._failure: PeragoError | None = None

    def remote(self, give_up: Callable[[], bool]) -> str | None:
        """Start the server unless it runs, and wait for it; raises when this start fails."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="perago-spark", daemon=True)
                self._thread.start()
            failures = self._failures
            while self._remote is None:
                if self._failures > failures and self._failure is not None:
                    raise BackendUnavailableError(
                        f"Spark could not be started: {self._failure}", hint=self._failure.hint
                    )
                if give_up() or self._closing.is_set():
                    return None
                self._changed.wait(_TICK_SECONDS)
            return self._remote

    def interrupt(self, execution_id: str) -> None:
        # Without the server, nothing runs on it.
        if (remote := self._remote) is not None:
            _interrupt(remote, execution_id)

    def close(self) -> None:
        """Stop the server and wait until it is gone."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="perago-spark-"))
        log_path(folder, "any").parent.mkdir(mode=0o700)
        watchdog = Watchdog(log_path(folder, "watchdog"))
        watchdog.remove_at_end(folder)
        deaths = 0
        try:
            while not self._closing.is_set():
                began = time.monotonic()
                self._run_until_death(folder, watchdog)
                lived = time.monotonic() - began
                deaths = 1 if lived > _STABLE_SECONDS else deaths + 1
                self._closing.wait(min(2.0 ** (deaths - 2), _LONGEST_PAUSE))
        finally:
            watchdog.release()
            shutil.rmtree(folder, ignore_errors=True)

    def _run_until_death(self, folder: Path, watchdog: Watchdog) -> None:
        """Start the server and watch it until it dies or the worker closes."""
        # A new port and a new token each time: another process may have taken the old port.
        port = loopback.choose(["spark"], {})["spark"]
        token = secrets.token_urlsafe(32)
        remember_secret(token)
        server = ConnectServer(folder, port, watchdog, token=token, settings=self._settings)
        try:
            self._start(server)
            while not self._closing.wait(_TICK_SECONDS):
                server.raise_if_dead()
        except (PeragoError, OSError) as error:
            self._fail(error if isinstance(error, PeragoError) else ServerError(str(error)))
        finally:
            self._remote = None
            with contextlib.suppress(ServerError):
                server.stop()

    def _start(self, server: ConnectServer) -> None:
        began = time.monotonic()
        command = server.prepare()
        server.launch(command)
        while not server.healthy():
            server.raise_if_dead()
            if time.monotonic() - began > server.startup_seconds:
                raise server.failed(f"was not healthy after {server.startup_seconds:.0f} s")
            if self._closing.wait(_TICK_SECONDS):
                return
        with self._changed:
            self._remote = server.remote
            self._changed.notify_all()
        seconds = round(time.monotonic() - began, 1)
        _log.info(
            "spark_started", pid=server.pid, port=server.port, seconds=seconds, java=command.java
        )

    def _fail(self, error: PeragoError) -> None:
        if self._closing.is_set():
            return
        _log.error("spark_died", reason=str(error))
        with self._changed:
            self._remote = None
            self._failures += 1
            self._failure = error
            self._changed.notify_all()


def _interrupt(remote: str, execution_id: str) -> None:
    request = {"remote": remote, "execution_id": execution_id}
    try:
        reply = child.ask(interrupting, request, seconds=_INTERRUPT_SECONDS)
    except BackendError as error:
        _log.warning("spark_interrupt_failed", reason=str(error))
        return
    _log.info("spark_interrupted", operations=reply["interrupted"])
