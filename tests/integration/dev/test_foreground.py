"""`perago dev up` in the foreground: every way it can end leaves nothing running."""

from __future__ import annotations

import json
import signal

import pytest

from integration.dev.conftest import Foreground, Perago, await_true
from perago.servers.process import wait_gone

pytestmark = pytest.mark.servers


def _await_launched(perago: Perago) -> None:
    await_true("both servers to be started", lambda: len(perago.recorded()) == 2)


def test_ctrl_c_stops_everything_and_removes_ephemeral_data(
    perago: Perago, foreground: Foreground
) -> None:
    running = foreground("--ephemeral", "--json")
    assert running.stdout is not None
    printed = ""
    while not printed.endswith("}\n") or printed.count("{") != printed.count("}"):
        printed += running.stdout.readline()
    assert json.loads(printed)["spark"] is None
    servers = perago.recorded()

    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert not any(server.alive for server in servers.values())
    assert not perago.data_dir.exists()


def test_a_killed_parent_leaves_no_server(perago: Perago, foreground: Foreground) -> None:
    running = foreground("--ephemeral")
    _await_launched(perago)
    servers = perago.recorded()
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=10)
    assert wait_gone(servers.values(), 30) == []
    await_true("the data to be removed", lambda: not perago.data_dir.exists())


def test_sigterm_while_starting_stops_what_was_started(
    perago: Perago, foreground: Foreground
) -> None:
    running = foreground()
    _await_launched(perago)
    servers = perago.recorded()
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert not any(server.alive for server in servers.values())


def test_a_server_that_dies_while_starting_is_named_with_its_log(
    perago: Perago, foreground: Foreground
) -> None:
    running = foreground()
    _await_launched(perago)
    servers = perago.recorded()
    servers["conductor"].kill()
    _, said = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "PRG-606 ServerError: conductor ended by itself with signal 9" in said
    assert f"the end of {perago.data_dir}/logs/conductor.log" in said
    assert not any(server.alive for server in servers.values())


def test_a_second_up_while_the_first_starts_says_so(perago: Perago, foreground: Foreground) -> None:
    foreground()
    _await_launched(perago)
    done = perago.run("up", "--no-spark")
    assert done.returncode == 2
    assert "another process is starting the stack" in done.stderr


def test_down_ends_a_foreground_stack_in_good_order(perago: Perago, foreground: Foreground) -> None:
    running = foreground()
    assert running.stdout is not None
    assert running.stdout.readline().startswith("lakefs")
    assert perago.run("down").returncode == 0
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert perago.recorded() == {}
