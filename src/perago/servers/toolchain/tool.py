"""Run a build or fetch tool to its end: bounded, observed, and with a failure people can read."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perago.errors import SetupError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_TICK_SECONDS = 0.2
_NETWORK_SIGNS = (
    "server access error",
    "dial tcp",
    "connection refused",
    "connection reset",
    "unknownhost",
    "no such host",
    "timed out",
    "tls:",
    "sslhandshake",
    "unexpected eof",
    "premature eof",
    "invalid sha1",
    "invalid md5",
    "checksum mismatch",
    "unresolved dependency",
    "download failed",
)


def run(
    command: Sequence[str],
    *,
    what: str,
    cwd: Path,
    log: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    on_tick: Callable[[], None] = lambda: None,
    way_round: str,
) -> str:
    """Run ``command`` and return what it printed; raise :class:`SetupError` when it fails.

    Its stderr goes to ``log``, where ``on_tick`` may look how far it has come. ``what`` completes
    "could not …"; ``way_round`` says what to do instead of using this tool.
    """
    deadline = time.monotonic() + seconds
    printed = log.with_suffix(".out")
    with log.open("wb") as errors, printed.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise SetupError(
                        f"could not {what}: not done after {seconds:.0f} s",
                        hint=f"Check the network and the machine's load, or {way_round}.",
                    )
                on_tick()
                time.sleep(_TICK_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    answer = printed.read_text(errors="replace")
    if process.returncode != 0:
        raise _failure(what, log.read_text(errors="replace") + answer, way_round)
    return answer


def _failure(what: str, output: str, way_round: str) -> SetupError:
    lowered = output.lower()
    if "no space left on device" in lowered:
        return disk_full(f"could not {what}")
    signs = (*_NETWORK_SIGNS, "error", "fail")
    telling = next(
        (line for sign in signs if (line := _line_with(sign, output))), "no reason given"
    )
    if any(sign in lowered for sign in _NETWORK_SIGNS):
        return SetupError(
            f"could not {what}, the download broke: {telling}",
            hint=f"Check the network and proxy settings and try again, or {way_round}.",
        )
    return SetupError(f"could not {what}: {telling}", hint=f"Correct that, or {way_round}.")


def _line_with(sign: str, output: str) -> str | None:
    return next((line.strip() for line in output.splitlines() if sign in line.lower()), None)


def disk_full(what: str) -> SetupError:
    """The error for a full disk."""
    return SetupError(
        f"{what}: the disk is full",
        hint="Free some space (about 2 GB), or point PERAGO_CACHE or --data-dir to another disk.",
    )
