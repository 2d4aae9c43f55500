"""Run a program of ``examples/`` as a reader does, and end all of it if that takes too long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perago import dev

EXAMPLES = Path(__file__).parents[2] / "examples"
# This code, and not what is installed.
SOURCE = str(Path(dev.__file__).parents[1])


def run_example(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
) -> str:
    """Run ``examples/ARGUMENTS`` in a folder; what it printed, after it ended with 0."""
    program, *options = arguments
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / program), *options],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, out
    return out
