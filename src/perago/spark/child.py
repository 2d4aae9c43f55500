"""Send a request to a Spark Connect server from a child process.

The supervisor never loads pyspark: its gRPC calls have no deadline and cannot be interrupted,
while a process can be killed. The child reads one JSON object from its standard input, so that the
remote, which carries a token, is in no argument list and no environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perago.errors import BackendUnavailableError
from perago.text import shorten

_DETAILS = re.compile(r'details = "(.+)"')
_LONGEST_REASON = 300


def ask(module: ModuleType, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    """Run ``module`` with ``python -m`` on ``request`` and return its reply.

    The module must pass its handler to :func:`serve`, and must not import pyspark when it is
    imported here. Raises ``BackendUnavailableError`` when there is no reply within ``seconds`` or
    the handler failed.
    """
    command = [sys.executable, "-m", module.__name__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BackendUnavailableError(
            f"the Spark Connect server did not answer within {seconds:.0f} s"
        ) from None
    except OSError as error:
        raise BackendUnavailableError(
            f"no process could be started for a request to the Spark Connect server: {error}"
        ) from error
    reply = _reply_of(done)
    if "error" in reply:
        raise BackendUnavailableError(
            f"the request to the Spark Connect server failed: {reply['error']}"
        )
    return reply


def _reply_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The last line, which a process that was killed has not or only in part."""
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        reply: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": f"exit {done.returncode}"}
    return reply


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the request from stdin, handle it, and print the reply as the last line of stdout."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    try:
        reply = handle(request)
    except Exception as error:  # noqa: BLE001  every error becomes the reply
        reply = {"error": telling_line(str(error) or type(error).__name__)}
    sys.stdout.write("\n" + json.dumps(reply) + "\n")
    sys.stdout.flush()


def telling_line(text: str) -> str:
    """Extract the line of a gRPC or Spark error that says what went wrong."""
    details = _DETAILS.search(text)
    return shorten(details[1] if details else text.strip().partition("\n")[0], _LONGEST_REASON)
