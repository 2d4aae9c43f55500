"""Run the servers together: start them in parallel, watch them, stop them or detach from them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import platformdirs
from filelock import FileLock, Timeout

from perago.errors import ServerError, SetupError
from perago.home import absolute
from perago.progress import note, shown
from perago.servers import conductor, lakefs, loopback, process
from perago.servers.conductor import Conductor
from perago.servers.endpoints import Endpoints
from perago.servers.lakefs import LakeFS
from perago.servers.server import Server, await_healthy, log_path
from perago.servers.spark import SMALL_JOBS, ConnectServer, ConnectSettings
from perago.servers.state import LOCK_FILE, Secrets, State, claim, load
from perago.servers.toolchain import spark_jars, tool
from perago.servers.toolchain.cache import Cache
from perago.servers.watchdog import Watchdog

SERVER_NAMES = ("lakefs", "conductor", "spark")
_WATCH_SECONDS = 0.5


def default_data_dir() -> Path:
    """Return the default data directory of a stack."""
    return platformdirs.user_data_path("perago") / "dev"


def obtain(*, spark: bool = True) -> None:
    """Find, build and fetch the programs of a stack, and start nothing."""
    cache = Cache.of_user()
    lakefs.find_or_build(cache)
    conductor.find_or_fetch(cache)
    if spark:
        spark_jars.find_or_fetch(cache)


class Stack:
    """A LakeFS, a Conductor and, unless left out, a Spark Connect server on one data directory.

    :meth:`up` starts one. As a context manager it stops its servers at the end of the block. The
    servers end with this process, even when it is killed, unless :meth:`detach` was called.
    """

    def __init__(self, data_dir: Path, state: State, lock: FileLock, batch_delay: str | None):
        self.data_dir = data_dir
        self._state = state
        self._lock = lock
        self._released = False
        log_path(data_dir, "any").parent.mkdir(mode=0o700, exist_ok=True)
        self._watchdog = Watchdog(log_path(data_dir, "watchdog"))
        if state.ephemeral:
            self._watchdog.remove_at_end(data_dir)
        secrets, port = state.secrets, state.ports
        self.lakefs = LakeFS(
            data_dir,
            port["lakefs"],
            self._watchdog,
            secrets=secrets.lakefs,
            max_batch_delay=batch_delay,
        )
        self.conductor = Conductor(data_dir, port["conductor"], self._watchdog)
        self.spark = ConnectServer(
            data_dir,
            port["spark"],
            self._watchdog,
            token=secrets.spark_token,
            settings=ConnectSettings(
                "perago-dev", self.lakefs.endpoint.connection, conf=SMALL_JOBS
            ),
        )
        for server in self.servers:
            server.on_change = self._record

    @classmethod
    def up(
        cls,
        data_dir: Path,
        *,
        spark: bool = True,
        ephemeral: bool = False,
        max_batch_delay: str | None = "0s",
    ) -> Self:
        """Start the servers on ``data_dir`` and wait until all of them are healthy.

        ``ephemeral`` removes the directory at the end. ``max_batch_delay`` is LakeFS's
        ``graveler.max_batch_delay``: "0s" makes single clients fast, None keeps LakeFS's default.
        """
        data_dir = absolute(data_dir)
        with _explained(data_dir):
            stack = cls._claim(data_dir, ephemeral=ephemeral, batch_delay=max_batch_delay)
            try:
                stack._start([stack.lakefs, stack.conductor, *([stack.spark] if spark else [])])
                stack._record(ready=True)
            except BaseException:
                stack.stop()
                raise
            return stack

    @classmethod
    def _claim(cls, data_dir: Path, *, ephemeral: bool, batch_delay: str | None) -> Self:
        """Lock the data directory and build its stack; start nothing yet."""
        claim(data_dir)
        lock = _locked(data_dir)
        try:
            state = _next_state(data_dir, ephemeral=ephemeral)
            state.save(data_dir)
            return cls(data_dir, state, lock, batch_delay)
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers, including those that do not run."""
        return (self.lakefs, self.conductor, self.spark)

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the servers that run, by name."""
        return {server.name: server.pid for server in self.servers if server.pid is not None}

    @property
    def endpoints(self) -> Endpoints:
        """The addresses and credentials of the servers."""
        return self._state.endpoints

    def start_spark(self) -> None:
        """Start the Spark server of a stack that was started without it."""
        if self.spark.pid is None:
            self._start([self.spark])

    def watch(self) -> None:
        """Return when `perago dev down` ends the stack; raise when a server dies by itself."""
        while True:
            try:
                for server in self.servers:
                    server.raise_if_dead()
            except ServerError:
                # The directory of an ephemeral stack may already be removed, with its record.
                recorded = load(self.data_dir)
                if recorded is None or recorded.stopping:
                    return
                raise
            time.sleep(_WATCH_SECONDS)

    def stop(self) -> None:
        """End all servers in parallel, and remove the data of an ephemeral stack.

        A second call, or a call after :meth:`detach`, does nothing.
        """
        if self._released:
            return
        left = process.end([server.identity for server in self.servers if server.identity])
        if left:
            # Released: the watchdog must not remove data under a running process.
            self._release()
            raise ServerError(f"processes {[p.pid for p in left]} did not end after SIGKILL")
        for server in self.servers:
            server.forget()
        self._record()
        if self._state.ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        self._release()

    def detach(self) -> Endpoints:
        """Leave the servers running after this process; ``perago dev down`` ends them."""
        self._release()
        return self.endpoints

    def _release(self) -> None:
        self._released = True
        self._watchdog.release()
        self._lock.release()

    def _start(self, servers: Sequence[Server]) -> None:
        # First what can fail or take minutes, then all processes, then the wait: so they start in
        # parallel without a thread.
        prepared = [(server, server.prepare()) for server in servers]
        for line in javas([(server.name, command.java) for server, command in prepared]):
            note(line)
        title = f"starting {', '.join(server.name for server in servers)}"
        with shown(title, len(servers), "servers") as advance:
            for server, command in prepared:
                server.launch(command)
            await_healthy(servers, advance)

    def _record(self, **changes: bool) -> None:
        running = {server.name: server.identity for server in self.servers if server.identity}
        self._state = self._state.model_copy(update={"servers": running, **changes})
        self._state.save(self.data_dir)


def javas(servers: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Say which Java servers run on, one sentence for each; some servers need none."""
    users: dict[str, list[str]] = {}
    for name, java in servers:
        users.setdefault(java, []).append(name)
    for java, names in users.items():
        if java:
            yield f"{' and '.join(names)} {'run' if len(names) > 1 else 'runs'} on {java}"


@contextmanager
def _explained(data_dir: Path) -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except OSError as error:
        if error.errno in tool.DISK_FULL:
            raise tool.disk_full(f"could not write to {data_dir}") from error
        raise SetupError(
            f"could not start the stack in {data_dir}: {error}",
            hint="Check the folder's permissions, or use another --data-dir.",
        ) from error


def _locked(data_dir: Path) -> FileLock:
    """Acquire the lock of a data directory, which at most one process has."""
    lock = FileLock(data_dir / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise SetupError(
            f"another process runs or starts the stack in {data_dir}",
            hint="Use that one (`perago dev env`), stop it (`perago dev down`), or use another "
            "--data-dir.",
        ) from None
    return lock


def _next_state(data_dir: Path, *, ephemeral: bool) -> State:
    """Build the record to start from, with the secrets and ports of the previous run."""
    before = load(data_dir)
    if before is not None and before.running:
        raise SetupError(
            f"the servers of {data_dir} run already: {', '.join(before.running)}",
            hint="Stop them with `perago dev down`, or use another --data-dir.",
        )
    if before is not None and ephemeral and not before.ephemeral:
        raise SetupError(
            f"{data_dir} holds the data of an earlier stack, which --ephemeral would remove",
            hint="Use another --data-dir, or leave --ephemeral out.",
        )
    return State(
        ephemeral=ephemeral,
        secrets=before.secrets if before else Secrets.random(),
        ports=loopback.choose(SERVER_NAMES, before.ports if before else {}),
    )
