"""Running `perago` as users do: as a command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perago.servers.process import ProcessId

Command = list[str]


class Perago:
    """The ``perago dev`` commands on one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def command(self, verb: str, *options: str) -> Command:
        """The argument list of a ``dev`` command."""
        directory = ["--data-dir", str(self.data_dir)]
        return [sys.executable, "-m", "perago", "dev", verb, *directory, *options]

    def run(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(verb, *options), capture_output=True, text=True, timeout=110, check=False
        )

    def json(self, verb: str, *options: str) -> Any:
        """Run a command that succeeds and prints one JSON object."""
        done = self.run(verb, "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def recorded(self) -> dict[str, ProcessId]:
        """The processes the stack's record names; none while there is no record."""
        record = self.data_dir / "stack.json"
        if not record.exists():
            return {}
        servers = json.loads(record.read_text())["servers"]
        return {name: ProcessId(**identity) for name, identity in servers.items()}


@pytest.fixture
def perago(tmp_path: Path) -> Iterator[Perago]:
    """The commands on a fresh data directory; what still runs at the end is ended."""
    commands = Perago(tmp_path / "stack")
    yield commands
    commands.run("down")


Foreground = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def foreground(perago: Perago) -> Iterator[Foreground]:
    """Start `perago dev up` in the foreground, as a shell would, without waiting for it."""
    with ExitStack() as stack:

        def start(*options: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    perago.command("up", "--no-spark", *options),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def await_true(what: str, check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until ``check`` holds; fail, naming ``what``, when it does not in time."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.1)
