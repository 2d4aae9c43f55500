"""Start, check and stop one server: a child process with a port, a log and a health check."""

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
from perago.masking import is_secret_variable
from perago.servers import loopback
from perago.servers.process import ProcessId, end
from perago.servers.watchdog import Watchdog

_POLL_SECONDS = 0.1
_PROBE_SECONDS = 5.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Command:
    """How to start a server. Every user can see the arguments (`ps`): they hold no secret."""

    arguments: list[str]
    env: dict[str, str]
    # The Java that it runs on, for people; empty for a server that needs none.
    java: str = ""


class Server(ABC):
    """A server that can be started, checked, stopped, and started again on the same port."""

    name: ClassVar[str]
    startup_seconds: ClassVar[float]

    def __init__(self, data_dir: Path, port: int, watchdog: Watchdog) -> None:
        self.home = data_dir / self.name
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.log = log_path(data_dir, self.name)
        self.port = port
        # Called after every start and stop, so that the record of a stack is up to date.
        self.on_change: Callable[[], None] = lambda: None
        self._watchdog = watchdog
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None

    @abstractmethod
    def prepare(self) -> Command:
        """Obtain the server's program, write its settings, and return the command to start it.

        The first time this may take minutes.
        """

    @abstractmethod
    def healthy(self) -> bool:
        """Whether the server answers requests now; returns within seconds."""

    @property
    def identity(self) -> ProcessId | None:
        """The process of the server; None while it does not run."""
        return self._identity

    @property
    def pid(self) -> int | None:
        """The pid of the server; None while it does not run."""
        return self._identity.pid if self._identity else None

    @property
    def exit_status(self) -> int | None:
        """The exit code, negative for a signal; None while the server runs or before its start."""
        return self._child.poll() if self._child else None

    @property
    def ending(self) -> str | None:
        """How the process ended, in words; None while it runs or before its start."""
        status = self.exit_status
        if status is None:
            return None
        return f"signal {-status}" if status < 0 else f"exit code {status}"

    def start(self) -> None:
        """Start the server and wait until it is healthy."""
        self.launch(self.prepare())
        await_healthy([self])

    def launch(self, command: Command) -> None:
        """Start the process and return at once."""
        if self._identity is not None:
            raise ServerError(f"{self.name} runs already, with pid {self._identity.pid}")
        if not loopback.is_free(self.port):
            raise SetupError(
                f"port {self.port} of {self.name} is in use by another process",
                hint="End that process, or start again: another port is then chosen.",
            )
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        self._child = self._watchdog.spawn(
            command.arguments, env=command.env, cwd=self.home, log=self.log
        )
        self._identity = ProcessId.of(self._child.pid)
        self.on_change()

    def raise_if_dead(self) -> None:
        """Raise :class:`ServerError` when the process has ended without :meth:`stop`."""
        if self._identity is not None and (how := self.ending) is not None:
            raise self.failed(f"ended by itself with {how}")

    def stop(self) -> None:
        """End the process and its descendants; do nothing when it does not run."""
        if self._child is None or self._identity is None:
            return
        if end([self._identity]):
            raise self.failed("did not end after SIGKILL")
        self.forget()
        self.on_change()

    def forget(self) -> None:
        """Reap a process that was ended by other means than :meth:`stop`."""
        if self._child is not None:
            self._child.wait()
        self._child = self._identity = None

    def failed(self, what: str) -> ServerError:
        """Build the error that names this server, with the end of its log."""
        return ServerError(f"{self.name} {what}{described_tail(self.log)}")


def await_healthy(
    servers: Sequence[Server], advance: Callable[[int], None] = lambda _healthy: None
) -> None:
    """Wait until all servers are healthy; raises ``ServerError`` for one that dies or is late.

    ``advance`` is told how many are healthy by now.
    """
    began = time.monotonic()
    pending = list(servers)
    while pending:
        for server in servers:
            server.raise_if_dead()
        pending = [server for server in pending if not server.healthy()]
        advance(len(servers) - len(pending))
        for server in pending:
            if time.monotonic() - began > server.startup_seconds:
                raise server.failed(f"was not healthy after {server.startup_seconds:.0f} s")
        time.sleep(_POLL_SECONDS if pending else 0)


def log_path(data_dir: Path, name: str) -> Path:
    """Return the path of a server's log file."""
    return data_dir / "logs" / f"{name}.log"


def described_tail(log: Path) -> str:
    """Format the end of a log, to be appended to an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    except FileNotFoundError:
        lines = []
    text = "\n".join(f"  | {line}" for line in lines) or "  | (the log is empty)"
    return f"; the end of {log}:\n{text}"


def environment_without(*prefixes: str) -> dict[str, str]:
    """Copy this process's environment without what would change a server's settings.

    The worker's own secrets are left out as well: a server gets its credentials from its files.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(prefixes) and not is_secret_variable(key)
    }


def answers(port: int, path: str, headers: Mapping[str, str] | None = None) -> bool:
    """Whether a GET on a loopback port returns 200."""
    # http.client reads no proxy settings, which must not apply to loopback.
    connection = http.client.HTTPConnection(loopback.LOOPBACK, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listens(port: int) -> bool:
    """Whether a loopback port accepts connections."""
    try:
        with socket.create_connection((loopback.LOOPBACK, port), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def emptied(directory: Path) -> Path:
    """Create the directory anew: a killed server leaves its scratch files behind."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    return directory


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    partial = path.with_name(f"{path.name}.partial")
    # Removed first, because an existing file would keep its mode.
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)
