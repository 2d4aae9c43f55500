"""A process that has imported Perago, and forks for every command it is told to run.

Starting Python and importing all of it takes a second of CPU for each command, a fork hundredths.
Run as a program by ``support.command_line``: its standard input is a socket, on which one line of
JSON and the descriptors of both outputs come in, and the child's exit code goes out.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
from typing import Any

_PRELOADED = ("cli", "conductor", "lakefs", "operations", "wiring")


def preload() -> None:
    """Import what commands import, so that it is there after a fork."""
    for package in _PRELOADED:
        home = importlib.import_module(f"perago.{package}")
        for module in pkgutil.iter_modules(home.__path__, f"perago.{package}."):
            importlib.import_module(module.name)
    # Else each child would visit all of that once more when it ends.
    gc.collect()
    gc.freeze()


def serve(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request; returns in the children, with theirs, and at the end of the line."""
    while request := receive(line):
        child = os.fork()
        if child == 0:
            return request
        for descriptor in request[1]:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


def receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    text, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 2)
    while text and not text.endswith(b"\n"):
        text += line.recv(1 << 16)
    return (json.loads(text), descriptors) if text else None


def become(request: dict[str, Any], outputs: list[int]) -> None:
    """Turn this child into the process that was asked for."""
    for number, descriptor in enumerate(outputs, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # As `python -m` has it: the current folder comes first.
    sys.path[0] = request["folder"]


def main() -> None:
    preload()
    line = socket.socket(fileno=os.dup(0))
    request = serve(line)
    line.close()
    if request is None:
        return
    become(*request)
    code: str | None = request[0]["code"]
    sys.argv = ["-c" if code is not None else "perago", *request[0]["arguments"]]
    if code is not None:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        runpy.run_module("perago", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
