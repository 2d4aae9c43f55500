"""Run the real command line in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import perago
from support import forking_server

_SOURCE = Path(perago.__file__).parents[1]
_COMMAND_SECONDS = 60.0
_OURS = ("LAKECTL_", "CONDUCTOR_", "PERAGO_", "PYTHON")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


RunPerago = Callable[..., Ended]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without its servers: a unit test must not reach any."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
    return {**kept, "PYTHONPATH": str(_SOURCE), "COLUMNS": "100", "NO_COLOR": "1", **(extra or {})}


def start_python(
    *arguments: str, folder: Path, extra: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(*arguments: str, folder: Path, extra: Mapping[str, str] | None = None) -> Ended:
    with start_python(*arguments, folder=folder, extra=extra) as process:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return Ended(process.returncode, out, err)


def run_perago(*arguments: str, folder: Path, extra: Mapping[str, str] | None = None) -> Ended:
    """Run ``perago`` to its end, in a process that is forked from one with all imports done."""
    return _server().run(list(arguments), None, folder, environment(extra))


def run_code(code: str, *, folder: Path, extra: Mapping[str, str] | None = None) -> Ended:
    """Run Python code to its end, in a process that is forked from one with all imports done."""
    return _server().run([], code, folder, environment(extra))


class ForkingServer:
    """This process' end of ``support.forking_server``; its commands run one after the other."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self._line.settimeout(_COMMAND_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, forking_server.__file__],
                env=environment(),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def run(
        self, arguments: list[str], code: str | None, folder: Path, environment: dict[str, str]
    ) -> Ended:
        request = {
            "arguments": arguments,
            "code": code,
            "folder": str(folder),
            "environment": environment,
        }
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            outputs = [out.fileno(), err.fileno()]
            socket.send_fds(self._line, [json.dumps(request).encode() + b"\n"], outputs)
            try:
                ended = self._line.recv(64)
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                close_server()
                raise AssertionError(f"perago {arguments} does not end: {_text(err)}") from None
            assert ended, f"the process that runs commands is gone: {_text(err)}"
            return Ended(int(ended), _text(out), _text(err))

    def close(self) -> None:
        """End it: by itself at the end of its line, as it may have coverage to write."""
        self._line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)


@functools.cache
def _server() -> ForkingServer:
    """The one of this process, started by its first command."""
    return ForkingServer()


def close_server() -> None:
    """End the process that runs commands, if there is one."""
    if _server.cache_info().currsize:
        _server().close()
        _server.cache_clear()


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode()
