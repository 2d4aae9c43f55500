"""The life of one server, shown with a small HTTP server in place of a large one."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.errors import ServerError, SetupError
from perago.servers import loopback as ports
from perago.servers.process import ProcessId, wait_gone
from perago.servers.server import Command, Server, answers, write_private
from perago.servers.watchdog import Watchdog

_HTTP = ["-m", "http.server", "--bind", "127.0.0.1"]


class Toy(Server):
    """Serves its home directory, or does what a test tells it instead."""

    name = "toy"
    startup_seconds = 10.0
    program: tuple[str, ...] | None = None

    def prepare(self) -> Command:
        program = self.program or (*_HTTP, str(self.port))
        return Command([sys.executable, *program], dict(os.environ))

    def healthy(self) -> bool:
        return answers(self.port, "/")


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    (tmp_path / "logs").mkdir()
    watchdog = Watchdog(tmp_path / "logs" / "watchdog.log")
    server = Toy(tmp_path, ports.choose(["toy"], {})["toy"], watchdog)
    yield server
    server.stop()
    watchdog.release()


def test_it_starts_stops_and_starts_again_on_the_same_port(toy: Toy) -> None:
    changes: list[int | None] = []
    toy.on_change = lambda: changes.append(toy.pid)
    toy.start()
    first = toy.pid
    toy.stop()
    assert not toy.healthy()
    toy.start()
    assert toy.healthy()
    assert changes == [first, None, toy.pid]
    assert toy.log.with_suffix(".log.1").exists()


def test_a_server_that_ends_at_once_is_named_with_its_log(toy: Toy) -> None:
    toy.program = ("-c", "print('no room on this planet'); raise SystemExit(7)")
    with pytest.raises(ServerError, match=r"toy ended by itself with exit code 7") as caught:
        toy.start()
    assert "no room on this planet" in str(caught.value)


def watch(toy: Toy) -> None:
    """Look for a while: a process is a zombie before its last thread is gone."""
    for _ in range(500):
        toy.raise_if_dead()
        time.sleep(0.02)


def test_a_server_that_is_killed_is_named_with_the_signal(toy: Toy) -> None:
    toy.start()
    identity = toy.identity
    assert identity is not None
    identity.kill()
    assert wait_gone([identity], 10) == []
    with pytest.raises(ServerError, match="toy ended by itself with signal 9"):
        watch(toy)


def test_a_server_that_never_answers_is_not_waited_for_without_end(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "startup_seconds", 0.5)
    toy.program = ("-c", "import time; time.sleep(60)")
    with pytest.raises(ServerError, match="toy was not healthy after"):
        toy.start()


def test_a_taken_port_is_said_before_anything_is_started(toy: Toy) -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, toy.port))
        listener.listen()
        with pytest.raises(SetupError, match=f"port {toy.port} of toy is in use"):
            toy.start()
    assert toy.pid is None


def test_a_second_start_is_refused(toy: Toy) -> None:
    toy.start()
    with pytest.raises(ServerError, match="runs already"):
        toy.start()


def test_it_is_the_very_process_that_was_asked_for(toy: Toy) -> None:
    toy.start()
    assert toy.pid is not None
    command = Path(f"/proc/{toy.pid}/cmdline")
    if command.exists():
        assert b"register_and_exec" not in command.read_bytes()
    assert toy.identity == ProcessId.of(toy.pid)


def test_a_private_file_is_private_even_over_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
