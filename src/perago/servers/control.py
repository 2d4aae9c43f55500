"""Inspect and stop a stack from another process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from perago.errors import ServerError, SetupError
from perago.servers import conductor, lakefs, process
from perago.servers.endpoints import Endpoints
from perago.servers.server import described_tail, listens, log_path
from perago.servers.stack import SERVER_NAMES
from perago.servers.state import LOCK_FILE, State, load


class Health(StrEnum):
    """The state of a server."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEAD = "dead"
    OFF = "off"


@dataclass(frozen=True)
class ServerStatus:
    """The state of one server, as another process finds it."""

    name: str
    pid: int | None
    port: int | None
    health: Health
    log: Path

    @property
    def tail(self) -> str:
        """The end of the server's log, to be appended to a message."""
        return described_tail(self.log)


def inspect(data_dir: Path) -> list[ServerStatus]:
    """Report the state of each server of a data directory, by requests that take seconds."""
    state = load(data_dir)
    return [_status(data_dir, state, name) for name in SERVER_NAMES]


def _status(data_dir: Path, state: State | None, name: str) -> ServerStatus:
    log = log_path(data_dir, name)
    if state is None or name not in state.servers:
        return ServerStatus(name, None, None, Health.OFF, log)
    server, port = state.servers[name], state.ports[name]
    if not server.alive:
        return ServerStatus(name, None, port, Health.DEAD, log)
    health = Health.HEALTHY if _answers(state, name, port) else Health.UNHEALTHY
    return ServerStatus(name, server.pid, port, health, log)


def _answers(state: State, name: str, port: int) -> bool:
    match name:
        case "lakefs":
            return lakefs.is_healthy(port, state.endpoints.lakefs)
        case "conductor":
            return conductor.is_healthy(port)
        case _:
            return listens(port)


def running_endpoints(data_dir: Path) -> Endpoints:
    """Return the endpoints of a running stack; raises ``SetupError`` when none runs."""
    state = load(data_dir)
    if state is None or not state.running:
        raise SetupError(
            f"no stack runs in {data_dir}", hint="Start one with `perago dev up --detach`."
        )
    return state.endpoints


def already_up(data_dir: Path, *, spark: bool) -> Endpoints | None:
    """Return the endpoints of a healthy running stack; None when none runs.

    Raises when the running stack cannot be used: it is still starting, one of its servers is dead
    or does not answer, or ``spark`` is asked for and it runs without.
    """
    state = load(data_dir)
    if state is None or not state.running:
        return None
    if not state.ready:
        raise SetupError(
            f"another process is starting the stack in {data_dir}",
            hint="Wait until `perago dev status` shows it healthy, or use another --data-dir.",
        )
    for server in inspect(data_dir):
        if server.health in (Health.DEAD, Health.UNHEALTHY):
            raise ServerError(
                f"the stack in {data_dir} runs, but {server.name} is {server.health}{server.tail}",
                hint="Stop the rest with `perago dev down`, then start it again.",
            )
    if spark and state.endpoints.spark is None:
        raise SetupError(
            f"the stack in {data_dir} runs without Spark",
            hint="Stop it with `perago dev down` and start it with Spark, or add --no-spark.",
        )
    return state.endpoints


def shut_down(data_dir: Path) -> list[str]:
    """End the recorded processes and no others; return the names of those that ran."""
    state = load(data_dir)
    if state is None:
        return []
    running = state.running
    if running:
        state.model_copy(update={"stopping": True}).save(data_dir)
    if left := process.end(running.values()):
        raise ServerError(f"processes {[p.pid for p in left]} did not end after SIGKILL")
    _record_end(data_dir, state)
    return list(running)


def _record_end(data_dir: Path, state: State) -> None:
    """Record that the stack has ended, unless a foreground process, which has the lock, does."""
    lock = FileLock(data_dir / LOCK_FILE)
    try:
        with lock.acquire(timeout=process.GRACE_SECONDS):
            if state.ephemeral:
                shutil.rmtree(data_dir, ignore_errors=True)
            elif data_dir.exists():
                state.model_copy(update={"servers": {}, "stopping": False}).save(data_dir)
    except (Timeout, FileNotFoundError):
        # A program that uses the stack has the lock, or removed it with an ephemeral stack.
        return
