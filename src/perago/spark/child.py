"""Ask something of a Spark Connect server in a process of its own.

The supervisor never loads pyspark: gRPC calls have no deadline of their own and cannot be
interrupted, while a process can be ended. It takes one JSON object on its standard input, so that
the remote, which carries a token, is in no argument list and no environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

from perago.errors import BackendUnavailableError

_DETAILS = re.compile(r'details = "(.+)"')
_LONGEST_REASON = 300

Question = Literal["perago.spark.interrupting", "perago.spark.probe"]


def ask(question: Question, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    """Run the module ``question`` with ``request``; its answer, within ``seconds``."""
    command = [sys.executable, "-m", question]
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
    lines = done.stdout.decode(errors="replace").splitlines()
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": f"exit {done.returncode}"}
    if "error" in found:
        raise BackendUnavailableError(
            f"the Spark Connect server could not be asked: {found['error']}"
        )
    return found


def answer(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The other side: read the request, print the answer as the last line."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    try:
        found = handle(request)
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        found = {"error": in_short(str(error) or type(error).__name__)}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()


def in_short(text: str) -> str:
    """The telling line of an error of gRPC or of Spark."""
    details = _DETAILS.search(text)
    return (details[1] if details else text.strip().partition("\n")[0])[:_LONGEST_REASON]
