"""Give a worker its Spark Connect server: an external one, or a managed one that it keeps running.

A managed server is started by the first attempt that needs it. A thread starts it, watches it, and
starts it again after its death, with a pause that grows. A server that no attempt has used for a
while is stopped, and the next attempt starts a new one. It ends with the worker: when the
supervisor is killed, the watchdog of :mod:`perago.servers.watchdog` ends it.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import structlog

from perago.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    PeragoError,
    ServerError,
    SparkServerDiedError,
)
from perago.masking import forget_secret, remember_secret
from perago.retry import growing_pause
from perago.servers import loopback
from perago.servers.kept_logs import KeptLogs, rotate
from perago.servers.server import log_path
from perago.servers.spark import ConnectServer, ConnectSettings
from perago.servers.watchdog import Watchdog
from perago.spark import child, interrupting
from perago.spark.settings import ExternalSpark, ManagedSpark

_TICK_SECONDS = 0.2
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# The death of a server that ran this long begins a new count of deaths.
_STABLE_SECONDS = 120.0
_INTERRUPT_SECONDS = 30.0
# Texts with the token of a server that is gone may still be under way; each makes masking slower.
_KEPT_TOKENS = 8
_log = structlog.get_logger(__name__)


class SparkRuntime(Protocol):
    """Access to a worker's Connect server; safe to use from all slots' threads."""

    def remote(self, give_up: Callable[[], bool], user: str = "") -> str | None:
        """Wait for the server and return its connection string; None after ``give_up``.

        ``user`` is the execution that uses the server until :meth:`leave`.
        """
        ...

    @property
    def ui(self) -> str | None:
        """The address of its web pages, while it runs and serves them."""
        ...

    def leave(self, user: str) -> None:
        """Say that an execution does not use the server any more."""
        ...

    def death(self, user: str, seconds: float = 0.0) -> SparkServerDiedError | None:
        """Return why the server is gone that an execution uses; wait up to ``seconds`` for it.

        None while it runs, or when that is not known.
        """
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
    return ManagedRuntime(spark.connect, idle_seconds=spark.idle_seconds, logs=spark.logs)


class ExternalRuntime:
    """An external server, run by its operator."""

    def __init__(self, remote: str) -> None:
        self._remote = remote

    def remote(self, give_up: Callable[[], bool], user: str = "") -> str | None:
        return self._remote

    @property
    def ui(self) -> str | None:
        """None: where it is, and for whom, is its operator's business."""
        return None

    def leave(self, user: str) -> None:
        """Do nothing: whether it is idle is its operator's business."""

    def death(self, user: str, seconds: float = 0.0) -> SparkServerDiedError | None:
        """Return None: only a request shows it."""

    def interrupt(self, execution_id: str) -> None:
        _interrupt(self._remote, execution_id, alone=False)

    def close(self) -> None:
        """Do nothing: an external server keeps running."""


class ManagedRuntime:
    """A managed server, run by this worker.

    After ``idle_seconds`` without a user it is stopped. Its log is kept in the folder ``logs``.
    """

    def __init__(
        self, settings: ConnectSettings, *, idle_seconds: float = 0.0, logs: Path | None = None
    ) -> None:
        self._settings = settings
        self._logs = KeptLogs(logs, "spark") if logs is not None else None
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._remote: str | None = None
        self._ui: str | None = None
        self._failures = 0
        self._failure: PeragoError | None = None
        # The executions that use the server or wait for it, and since when there has been none.
        self._users: set[str] = set()
        # The executions that have the address of the server that runs, and those whose server died.
        self._holders: set[str] = set()
        self._lost: dict[str, SparkServerDiedError] = {}
        self._idle_since = 0.0
        self._tokens: deque[str] = deque()

    def remote(self, give_up: Callable[[], bool], user: str = "") -> str | None:
        """Start the server unless it runs, and wait for it; raises when this start fails."""
        with self._changed:
            self._users.add(user)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
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
            self._holders.add(user)
            return self._remote

    @property
    def ui(self) -> str | None:
        return self._ui if self._remote is not None else None

    def leave(self, user: str) -> None:
        with self._changed:
            self._users.discard(user)
            self._holders.discard(user)
            self._lost.pop(user, None)
            if not self._users:
                self._idle_since = time.monotonic()

    def death(self, user: str, seconds: float = 0.0) -> SparkServerDiedError | None:
        with self._changed:
            self._changed.wait_for(lambda: user in self._lost, seconds)
            return self._lost.get(user)

    def interrupt(self, execution_id: str) -> None:
        with self._changed:
            remote, alone = self._remote, self._users <= {execution_id}
            is_lost = execution_id in self._lost
        # Without its server, nothing of it runs.
        if remote is not None and not is_lost:
            _interrupt(remote, execution_id, alone=alone)

    def close(self) -> None:
        """Stop the server and wait until it is gone."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        deaths = 0
        while self._is_wanted():
            began = time.monotonic()
            try:
                # Anew for each server: between two of them the folder may be tidied away.
                with _own_folder() as (folder, watchdog):
                    is_stopped = self._run_until_idle(folder, watchdog)
            except Exception as error:  # noqa: BLE001  who waits for the server must hear of it
                self._fail(ServerError(str(error)), SparkServerDiedError(str(error)))
                is_stopped = False
            if is_stopped:
                deaths = 0
                continue
            lived = time.monotonic() - began
            deaths = 1 if lived > _STABLE_SECONDS else deaths + 1
            self._closing.wait(growing_pause(_FIRST_PAUSE, _LONGEST_PAUSE, deaths))

    def _is_wanted(self) -> bool:
        """Wait until an execution needs the server; False when the worker closes."""
        with self._changed:
            while not self._users and not self._closing.is_set():
                self._changed.wait(_TICK_SECONDS)
        return not self._closing.is_set()

    def _run_until_idle(self, folder: Path, watchdog: Watchdog) -> bool:
        """Start the server and watch it; False when it died, True when it was stopped."""
        # A new port and a new token each time: another process may have taken the old port.
        port = loopback.choose(["spark"], {})["spark"]
        token = self._new_token()
        server = ConnectServer(folder, port, watchdog, token=token, settings=self._settings)
        try:
            self._keep_log(server)
            self._start(server)
            while not self._closing.wait(_TICK_SECONDS) and not self._retire():
                server.raise_if_dead()
                rotate(server.log)
        except (PeragoError, OSError) as error:
            known = error if isinstance(error, PeragoError) else ServerError(str(error))
            if isinstance(known, ServerError) and self._logs is not None:
                known.hint = f"Read the server's log, which is kept: {server.log}."
            self._fail(known, SparkServerDiedError(server.cause_of_death))
            return False
        finally:
            self._remote = None
            with contextlib.suppress(ServerError):
                server.stop()
        return True

    def _new_token(self) -> str:
        """Make a token that is masked in texts; the oldest ones are forgotten."""
        token = secrets.token_urlsafe(32)
        remember_secret(token)
        self._tokens.append(token)
        while len(self._tokens) > _KEPT_TOKENS:
            forget_secret(self._tokens.popleft())
        return token

    def _keep_log(self, server: ConnectServer) -> None:
        if self._logs is None:
            return
        try:
            server.log = self._logs.begin()
        except OSError as error:
            raise ConfigurationError(
                f"the log of Spark cannot be kept: {error}",
                hint="Give PERAGO_SPARK_LOGS a folder in which this user may write.",
            ) from error

    def _retire(self) -> bool:
        """Whether the server was idle for long enough; then its address is given out no more."""
        with self._changed:
            idle = time.monotonic() - self._idle_since
            if self._users or not self._idle_seconds or idle < self._idle_seconds:
                return False
            self._remote = None
        _log.info("spark_recycled", idle_seconds=round(idle))
        return True

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
            self._remote, self._ui = server.remote, server.ui
            # Who asked for it may have given up meanwhile.
            self._idle_since = time.monotonic()
            self._changed.notify_all()
        seconds = round(time.monotonic() - began, 1)
        ui = {"ui": server.ui} if server.ui is not None else {}
        kept = {"log": str(server.log)} if self._logs is not None else {}
        _log.info(
            "spark_started",
            pid=server.pid,
            port=server.port,
            seconds=seconds,
            java=command.java,
            **kept,
            **ui,
        )

    def _fail(self, error: PeragoError, death: SparkServerDiedError) -> None:
        """Tell who waits for the server why it did not start, and who uses it that it is gone."""
        if self._closing.is_set():
            return
        _log.error("spark_died", reason=str(error))
        with self._changed:
            self._remote = None
            self._lost |= dict.fromkeys(self._holders & self._users, death)
            self._holders.clear()
            self._failures += 1
            self._failure = error
            self._changed.notify_all()


@contextlib.contextmanager
def _own_folder() -> Iterator[tuple[Path, Watchdog]]:
    """A folder for a server, and a watchdog that removes it even after a sudden end."""
    folder = Path(tempfile.mkdtemp(prefix="perago-spark-"))
    try:
        log_path(folder, "any").parent.mkdir(mode=0o700)
        watchdog = Watchdog(log_path(folder, "watchdog"))
        try:
            watchdog.remove_at_end(folder)
            yield folder, watchdog
        finally:
            watchdog.release()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _interrupt(remote: str, execution_id: str, *, alone: bool) -> None:
    request = {"remote": remote, "execution_id": execution_id, "alone": alone}
    try:
        reply = child.ask(interrupting, request, seconds=_INTERRUPT_SECONDS)
    except BackendError as error:
        _log.warning("spark_interrupt_failed", reason=str(error))
        return
    _log.info("spark_interrupted", operations=reply["interrupted"])
