"""Run a build or fetch tool with a deadline, progress, and an error that says what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perago.errors import SetupError
from perago.masking import is_secret_variable

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

# Of Java and of Go.
_TRUST_SIGNS = ("pkix path", "failed to verify certificate")


def run(
    command: Sequence[str],
    *,
    what: str,
    cwd: Path,
    log: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    on_tick: Callable[[], None] = lambda: None,
    alternative: str,
) -> str:
    """Run ``command`` and return its stdout; raise :class:`SetupError` when it fails.

    Its stderr goes to ``log``, where ``on_tick`` can read its progress. ``what`` completes
    "could not …"; ``alternative`` says what to do instead of using this tool.
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
            env={**environment_without_secrets(), **(env or {})},
        )
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise SetupError(
                        f"could not {what}: not done after {seconds:.0f} s",
                        hint=f"Check the network and the machine's load, or {alternative}.",
                    )
                on_tick()
                time.sleep(_TICK_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    output_text = printed.read_text(errors="replace")
    if process.returncode != 0:
        raise _failure(what, log.read_text(errors="replace") + output_text, alternative)
    return output_text


def environment_without_secrets() -> dict[str, str]:
    """Copy this process's environment without the worker's secrets."""
    return {key: value for key, value in os.environ.items() if not is_secret_variable(key)}


def _failure(what: str, output: str, alternative: str) -> SetupError:
    lowered = output.lower()
    if "no space left on device" in lowered:
        return disk_full(f"could not {what}")
    signs = (*_NETWORK_SIGNS, "error", "fail")
    telling = next(
        (line for sign in signs if (line := _line_with(sign, output))), "no reason given"
    )
    if any(sign in lowered for sign in _TRUST_SIGNS):
        return SetupError(
            f"could not {what}, the certificate of the server is not trusted: {telling}",
            hint="Set SSL_CERT_FILE to the PEM file with the authorities of your network (for a "
            f"Java of your own, add them to its truststore), or {alternative}.",
        )
    if any(sign in lowered for sign in _NETWORK_SIGNS):
        return SetupError(
            f"could not {what}, the download failed: {telling}",
            hint=f"Check the network and proxy settings and try again, or {alternative}.",
        )
    return SetupError(f"could not {what}: {telling}", hint=f"Correct that, or {alternative}.")


def _line_with(sign: str, output: str) -> str | None:
    return next((line.strip() for line in output.splitlines() if sign in line.lower()), None)


def disk_full(what: str) -> SetupError:
    """Build the error for a full disk."""
    return SetupError(
        f"{what}: the disk is full",
        hint="Free about 2 GB, or set PERAGO_CACHE or --data-dir to a folder on another disk.",
    )
