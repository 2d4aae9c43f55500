"""When a managed server is started, stopped and started again; the server itself is stood in for.

What a real one does is in ``tests/integration/spark/test_runtime.py``.
"""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import BackendUnavailableError, ServerError
from perago.masking import mask_secrets
from perago.servers import loopback
from perago.servers.server import Command
from perago.servers.spark import ConnectSettings
from perago.spark import child
from perago.spark import runtime as module
from perago.spark.runtime import ManagedRuntime
from perago.text import MASK
from support.waiting import until

SETTINGS = ConnectSettings("test", LakeFSConnection("http://l:1", "key", SecretStr("secret")))


class Server:
    """A server that starts at once, and dies when it is told to."""

    made: list[Server]
    refuses = False

    def __init__(self, data_dir: Path, port: int, *_: Any, token: str, **__: Any) -> None:
        self.pid = self.port = port
        self.number = len(self.made)
        self.remote = f"sc://localhost:{self.number}/;token={token}"
        self.startup_seconds = 5.0
        self.is_dead = self.is_stopped = False
        self.ui: str | None = f"http://127.0.0.1:{port}"
        self.log = data_dir / "spark.log"
        self.made.append(self)

    @property
    def cause_of_death(self) -> str:
        return "the Spark server ended with exit code 3"

    def prepare(self) -> Command:
        if self.refuses:
            raise ServerError("it cannot be prepared")
        return Command(["server"], {})

    def launch(self, _: Command) -> None: ...

    def healthy(self) -> bool:
        return True

    def raise_if_dead(self) -> None:
        if self.is_dead:
            raise ServerError("spark ended by itself with exit code 3")

    def stop(self) -> None:
        self.is_stopped = True


class NoWatchdog:
    """Nothing is started, so that nothing must be ended."""

    def __init__(self, _: Path) -> None: ...
    def remove_at_end(self, _: Path) -> None: ...
    def release(self) -> None: ...


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """The servers that were made, in their order."""
    ports = itertools.count(1)
    monkeypatch.setattr(Server, "made", [], raising=False)
    monkeypatch.setattr(module, "ConnectServer", Server)
    monkeypatch.setattr(module, "Watchdog", NoWatchdog)
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.005)
    monkeypatch.setattr(loopback, "choose", lambda *_: {"spark": next(ports)})
    return Server.made


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests to end an execution's work."""
    asked: list[dict[str, Any]] = []

    def ask(_: object, request: dict[str, Any], **__: Any) -> dict[str, Any]:
        asked.append(request)
        return {"interrupted": 0}

    monkeypatch.setattr(child, "ask", ask)
    return asked


@pytest.fixture
def runtime(made: list[Server]) -> Iterator[ManagedRuntime]:
    running = ManagedRuntime(SETTINGS, idle_seconds=0.1)
    yield running
    running.close()


def never() -> bool:
    return False


def test_a_server_without_users_is_stopped_and_started_again_by_the_next(
    runtime: ManagedRuntime, made: list[Server]
) -> None:
    first = runtime.remote(never, "one")
    assert runtime.remote(never, "two") == first
    runtime.leave("one")
    with pytest.raises(AssertionError, match="to be stopped"):
        until(lambda: made[0].is_stopped, "a used server to be stopped", 0.3)
    runtime.leave("two")
    until(lambda: made[0].is_stopped, "the idle server to be stopped", 5)
    assert len(made) == 1
    second = runtime.remote(never, "three")
    assert second != first
    assert len(made) == 2
    assert not made[1].is_stopped


def test_without_a_time_a_server_stays(made: list[Server]) -> None:
    running = ManagedRuntime(SETTINGS)
    running.remote(never, "one")
    running.leave("one")
    with pytest.raises(AssertionError, match="to be stopped"):
        until(lambda: made[0].is_stopped, "the server to be stopped", 0.3)
    running.close()
    assert made[0].is_stopped


def test_a_dead_server_is_started_again_for_whoever_uses_it(
    runtime: ManagedRuntime, made: list[Server]
) -> None:
    assert runtime.ui is None
    first = runtime.remote(never, "one")
    assert runtime.ui == made[0].ui
    made[0].is_dead = True
    until(lambda: runtime.remote(never, "one") != first, "another server", 5)
    assert made[0].is_stopped
    assert runtime.ui == made[1].ui


def test_a_start_that_fails_is_told_to_who_asked(
    runtime: ManagedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "refuses", True)
    with pytest.raises(BackendUnavailableError, match="it cannot be prepared"):
        runtime.remote(never, "one")


def test_only_the_last_user_s_interruption_frees_what_all_have_cached(
    runtime: ManagedRuntime, interrupted: list[dict[str, Any]]
) -> None:
    runtime.remote(never, "one")
    runtime.remote(never, "two")
    runtime.interrupt("one")
    runtime.leave("one")
    runtime.interrupt("two")
    assert [(asked["execution_id"], asked["alone"]) for asked in interrupted] == [
        ("one", False),
        ("two", True),
    ]


def test_who_gives_up_gets_no_server(runtime: ManagedRuntime, made: list[Server]) -> None:
    runtime.remote(never, "one")
    made[0].is_dead = True
    until(lambda: made[0].is_stopped, "the death to be seen", 5)
    runtime.close()
    assert runtime.remote(lambda: True, "two") is None


def test_the_death_of_a_server_is_told_to_those_who_used_it_and_to_nobody_else(
    runtime: ManagedRuntime, made: list[Server], interrupted: list[dict[str, Any]]
) -> None:
    first = runtime.remote(never, "one")
    assert runtime.death("one") is None
    made[0].is_dead = True
    died = runtime.death("one", 5.0)
    assert str(died) == "the Spark server ended with exit code 3"
    assert runtime.remote(never, "two") != first
    assert runtime.death("two") is None
    # Nothing of it runs anywhere: nobody must be asked, which would take a while.
    runtime.interrupt("one")
    assert interrupted == []
    runtime.leave("one")
    assert runtime.death("one") is None


def test_a_server_that_is_stopped_has_not_died(runtime: ManagedRuntime, made: list[Server]) -> None:
    runtime.remote(never, "one")
    runtime.close()
    assert made[0].is_stopped
    assert runtime.death("one") is None


def test_each_server_s_log_is_kept_where_the_settings_say(
    made: list[Server], tmp_path: Path
) -> None:
    running = ManagedRuntime(SETTINGS, logs=tmp_path / "logs")
    first = running.remote(never)
    made[0].log.write_text("what it said\n")
    made[0].is_dead = True
    until(lambda: running.remote(never) != first, "another server", 5)
    running.close()
    assert made[0].log != made[1].log
    assert made[0].log.parent == made[1].log.parent == tmp_path / "logs"
    assert made[0].log.read_text() == "what it said\n"


def test_a_folder_for_logs_that_cannot_be_used_is_named(made: list[Server], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    running = ManagedRuntime(SETTINGS, logs=tmp_path / "file" / "logs")
    with pytest.raises(BackendUnavailableError, match="cannot be kept") as caught:
        running.remote(never)
    assert "PERAGO_SPARK_LOGS" in caught.value.hint
    running.close()


@pytest.mark.parametrize("broken", ["folder", "port", "surprise"])
def test_whatever_keeps_a_server_from_starting_is_told_and_the_next_one_tries_again(
    runtime: ManagedRuntime, made: list[Server], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    error = ValueError("a surprise") if broken == "surprise" else OSError(28, "No space left")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        match broken:
            case "folder":
                patch.setattr(tempfile, "mkdtemp", fail)
            case "port":
                patch.setattr(loopback, "choose", fail)
            case _:
                patch.setattr(Server, "prepare", fail)
        with pytest.raises(BackendUnavailableError, match=r"could not be started: .*(space|surpr)"):
            runtime.remote(never, "one")
    assert runtime.remote(never, "one") == made[-1].remote


def test_the_tokens_of_servers_that_are_long_gone_are_forgotten(
    runtime: ManagedRuntime, made: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of the last few servers may still be under way; more would slow down every line."""
    tokens = (f"token-of-server-{number}" for number in itertools.count())
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: next(tokens))
    monkeypatch.setattr(module, "_KEPT_TOKENS", 2)
    for _ in range(4):
        runtime.remote(never, "one")
        runtime.leave("one")
        until(lambda: made[-1].is_stopped, "the server to be stopped", 5)
    masked = [mask_secrets(f"token-of-server-{number}") for number in range(4)]
    assert masked == ["token-of-server-0", "token-of-server-1", MASK, MASK]
