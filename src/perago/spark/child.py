"""Ask something of a Spark Connect server in a process of its own.

The supervisor never loads pyspark: gRPC calls have no deadline of their own and cannot be
interrupted, while a process can be ended. It takes one JSON object on its standard input, so that
the remote, which carries a token, is in no argument list and no environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

from perago.errors import BackendUnavailableError

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
    if done.returncode or not lines:
        raise BackendUnavailableError(
            f"the Spark Connect server could not be asked: {_last_line(done.stderr)}"
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def answer(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The other side: read the request, print the answer as the last line."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    sys.stdout.write("\n" + json.dumps(handle(request)) + "\n")
    sys.stdout.flush()


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "it ended without a word"
