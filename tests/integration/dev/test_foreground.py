"""`perago dev up` in the foreground: every way it can end leaves nothing running."""

from __future__ import annotations

import json
import signal

import httpx
import pytest

from perago.dev import Stack
from perago.errors import SetupError
from perago.servers.process import wait_gone
from support.dev_commands import DevCommands, Foreground
from support.waiting import until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


def _await_launched(perago: DevCommands) -> None:
    until(lambda: len(perago.recorded()) == 2, "both servers to be started")


@pytest.mark.slow
def test_ctrl_c_stops_everything_and_removes_ephemeral_data(
    perago: DevCommands, foreground: Foreground
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


def test_a_killed_parent_leaves_no_server(perago: DevCommands, foreground: Foreground) -> None:
    running = foreground("--ephemeral")
    _await_launched(perago)
    servers = perago.recorded()
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=10)
    assert wait_gone(servers.values(), 30) == []
    until(lambda: not perago.data_dir.exists(), "the data to be removed")


def test_sigterm_while_starting_stops_what_was_started(
    perago: DevCommands, foreground: Foreground
) -> None:
    running = foreground()
    _await_launched(perago)
    servers = perago.recorded()
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert not any(server.alive for server in servers.values())


def test_a_server_that_dies_while_starting_is_named_with_its_log(
    perago: DevCommands, foreground: Foreground
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


def test_a_second_up_while_the_first_starts_says_so(
    perago: DevCommands, foreground: Foreground
) -> None:
    foreground()
    _await_launched(perago)
    done = perago.run("up", "--no-spark")
    assert done.returncode == 2
    assert "another process is starting the stack" in done.stderr
    with pytest.raises(SetupError, match="another process runs or starts the stack"):
        Stack.up(perago.data_dir)


@pytest.mark.slow
def test_a_foreground_stack_serves_its_dashboard_and_ends_with_down_in_good_order(
    perago: DevCommands, foreground: Foreground
) -> None:
    running = foreground()
    assert running.stdout is not None
    assert running.stdout.readline().startswith("lakefs")
    said = iter(running.stdout.readline, "")
    url = next(line.split()[1] for line in said if line.startswith("dashboard "))
    page = httpx.get(url, follow_redirects=True, timeout=30, trust_env=False)
    assert page.status_code == 200
    assert "Conductor has no workflow." in page.text
    assert perago.run("down").returncode == 0
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert perago.recorded() == {}
