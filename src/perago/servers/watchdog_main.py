"""End the servers of a parent process that was killed.

Run as ``python -m perago.servers.watchdog_main`` by :mod:`perago.servers.watchdog`, with the
reading end of a pipe as its standard input. It reads the lines ``server PID``, ``remove DIRECTORY``
and ``release``. The end of the file without a ``release`` means that the parent has ended: the
kernel also closes the pipe of a process that got ``kill -9``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

from perago.servers import process


def watch(lines: Iterable[str]) -> None:
    """Read the parent's lines to their end, then end the servers unless released."""
    servers: list[process.ProcessId] = []
    directory: str | None = None
    for line in lines:
        verb, _, value = line.strip().partition(" ")
        if verb == "release":
            return
        if verb == "server" and (server := process.ProcessId.of(int(value))):
            servers.append(server)
        elif verb == "remove":
            directory = value
    process.end(servers)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin)
