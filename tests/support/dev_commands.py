"""``perago dev`` as users run it: as a command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perago.servers.process import ProcessId

Command = list[str]
Foreground = Callable[..., "subprocess.Popen[str]"]


class DevCommands:
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
