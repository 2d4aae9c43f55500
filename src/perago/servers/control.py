"""What other processes can ask of a stack: how it is, where it is, and to end it."""

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
    """How a server is."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEAD = "dead"
    OFF = "off"


@dataclass(frozen=True)
class ServerStatus:
    """One server as seen from outside."""

    name: str
    pid: int | None
    port: int | None
    health: Health
    log: Path

    @property
    def tail(self) -> str:
        """The end of the server's log, ready to follow a message."""
        return described_tail(self.log)


def inspect(data_dir: Path) -> list[ServerStatus]:
    """How each server of a data directory is; asks them, and answers within seconds."""
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
    """The endpoints of a running stack; an error when there is none."""
    state = load(data_dir)
    if state is None or not state.running:
        raise SetupError(
            f"no stack runs in {data_dir}", hint="Start one with `perago dev up --detach`."
        )
    return state.endpoints


def already_up(data_dir: Path, *, spark: bool) -> Endpoints | None:
    """The endpoints of a stack that runs in good health; None when none runs.

    An error when one runs that cannot be used as asked: it is still being started, a server of it
    is dead or mute, or Spark is wanted and it was started without.
    """
    state = load(data_dir)
    if state is None or not state.running:
        return None
    if not state.ready:
        raise SetupError(
            f"another process is starting the stack in {data_dir}",
            hint="Wait until `perago dev status` shows it healthy, or name another --data-dir.",
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
    """End the recorded processes, and them only; return the names of those that ran."""
    state = load(data_dir)
    if state is None:
        return []
    running = state.running
    if running:
        state.model_copy(update={"stopping": True}).save(data_dir)
    if left := process.end(running.values()):
        raise ServerError(f"processes {[p.pid for p in left]} do not end, not even by SIGKILL")
    _settle(data_dir, state)
    return list(running)


def _settle(data_dir: Path, state: State) -> None:
    """Bring the record up to date, unless a foreground process does it: it holds the lock."""
    lock = FileLock(data_dir / LOCK_FILE)
    try:
        with lock.acquire(timeout=process.GRACE_SECONDS):
            if state.ephemeral:
                shutil.rmtree(data_dir, ignore_errors=True)
            elif data_dir.exists():
                state.model_copy(update={"servers": {}, "stopping": False}).save(data_dir)
    except (Timeout, FileNotFoundError):
        # Still held by a program that uses the stack, or removed with an ephemeral stack.
        return
