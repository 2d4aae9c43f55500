"""One server: a child process with a port, a log and a way to ask how it is."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from perago.errors import ServerError, SetupError
from perago.servers import loopback
from perago.servers.process import ProcessId, end
from perago.servers.watchdog import Watchdog

_POLL_SECONDS = 0.1
_PROBE_SECONDS = 5.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Command:
    """How a server is started. Arguments are public (`ps` shows them): no secrets in there."""

    arguments: list[str]
    env: dict[str, str]


class Server(ABC):
    """A server that can be started, asked, stopped, and started again on the same port."""

    name: ClassVar[str]
    startup_seconds: ClassVar[float]

    def __init__(self, data_dir: Path, port: int, watchdog: Watchdog) -> None:
        self.home = data_dir / self.name
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.log = log_path(data_dir, self.name)
        self.port = port
        # Called after every start and stop, so that a record of what runs names the right process.
        self.on_change: Callable[[], None] = lambda: None
        self._watchdog = watchdog
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None

    @abstractmethod
    def prepare(self) -> Command:
        """Obtain what the server is run from (which may take minutes the first time), write its
        settings into its home, and say how to start it."""

    @abstractmethod
    def healthy(self) -> bool:
        """Whether the server does its work now. Answers within seconds."""

    @property
    def identity(self) -> ProcessId | None:
        """The process that runs, if one does."""
        return self._identity

    @property
    def pid(self) -> int | None:
        """The pid of the process that runs, if one does."""
        return self._identity.pid if self._identity else None

    @property
    def exit_status(self) -> int | None:
        """How the process ended, negative for a signal; None while it runs or never ran."""
        return self._child.poll() if self._child else None

    def start(self) -> None:
        """Start the server and wait until it is healthy."""
        self.launch(self.prepare())
        await_healthy([self])

    def launch(self, command: Command) -> None:
        """Start the process and do not wait."""
        if self._identity is not None:
            raise ServerError(f"{self.name} runs already, with pid {self._identity.pid}")
        if not loopback.is_free(self.port):
            raise SetupError(
                f"port {self.port} of {self.name} is taken by another process",
                hint="End that process, or start anew: another port is then taken.",
            )
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        self._child = self._watchdog.spawn(
            command.arguments, env=command.env, cwd=self.home, log=self.log
        )
        self._identity = ProcessId.of(self._child.pid)
        self.on_change()

    def raise_if_dead(self) -> None:
        """Raise :class:`ServerError` when the process ended without being asked to."""
        if self._identity is not None and (status := self.exit_status) is not None:
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            raise self.failed(f"ended by itself with {how}")

    def stop(self) -> None:
        """End the process and all below it; nothing happens when it does not run."""
        if self._child is None or self._identity is None:
            return
        if end([self._identity]):
            raise self.failed("does not end, not even by SIGKILL")
        self.forget()
        self.on_change()

    def forget(self) -> None:
        """Take note that the process was ended from outside, and reap it."""
        if self._child is not None:
            self._child.wait()
        self._child = self._identity = None

    def failed(self, what: str) -> ServerError:
        """The error that names this server, with the end of its log."""
        return ServerError(f"{self.name} {what}{described_tail(self.log)}")


def await_healthy(servers: Sequence[Server]) -> None:
    """Wait until all of the servers answer; name the first that died or took too long."""
    began = time.monotonic()
    pending = list(servers)
    while pending:
        for server in servers:
            server.raise_if_dead()
        pending = [server for server in pending if not server.healthy()]
        for server in pending:
            if time.monotonic() - began > server.startup_seconds:
                raise server.failed(f"was not healthy after {server.startup_seconds:.0f} s")
        time.sleep(_POLL_SECONDS if pending else 0)


def log_path(data_dir: Path, name: str) -> Path:
    """The log file of a server."""
    return data_dir / "logs" / f"{name}.log"


def described_tail(log: Path) -> str:
    """The end of a log, ready to follow an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    except FileNotFoundError:
        lines = []
    text = "\n".join(f"  | {line}" for line in lines) or "  | (the log is empty)"
    return f"; the end of {log}:\n{text}"


def environment_without(*prefixes: str) -> dict[str, str]:
    """This process's environment less the variables that would change a server's settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}


def answers(port: int, path: str, headers: Mapping[str, str] | None = None) -> bool:
    """Whether a GET on a loopback port is answered with 200."""
    # http.client on purpose: it reads no proxy settings, which must not apply to loopback.
    connection = http.client.HTTPConnection(loopback.LOOPBACK, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listens(port: int) -> bool:
    """Whether something accepts connections on a loopback port."""
    try:
        with socket.create_connection((loopback.LOOPBACK, port), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def emptied(directory: Path) -> Path:
    """The directory, made anew: a killed server leaves its scratch files behind."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    return directory


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    # Removed first: an existing file would keep its mode.
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)
