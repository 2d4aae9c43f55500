"""Running `perago dev` as users do: as a command, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.dev_commands import DevCommands, Foreground


@pytest.fixture
def perago(tmp_path: Path) -> Iterator[DevCommands]:
    """The commands on a fresh data directory; what still runs at the end is ended."""
    commands = DevCommands(tmp_path / "stack")
    yield commands
    commands.run("down")


@pytest.fixture
def foreground(perago: DevCommands) -> Iterator[Foreground]:
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
