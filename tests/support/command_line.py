"""Run the real command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import perago

_SOURCE = Path(perago.__file__).parents[1]
RunPerago = Callable[..., "subprocess.CompletedProcess[str]"]
_OURS = ("LAKECTL_", "CONDUCTOR_", "PERAGO_", "PYTHON")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


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
    return run_python("-m", "perago", *arguments, folder=folder, extra=extra)
