"""The package ``perago`` of PyPI in an environment of its own, and how its worker is run.

It has the name of ours, so neither may see the other: its commands get an environment without our
variables and paths.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.bench.results import BENCH
from support.bench.rounds import PeerError

VERSION = "0.6.1"
_INSTALL_SECONDS = 900.0
_ADDRESS = re.compile(r"\S*://\S+")


def obtain(folder: Path = BENCH / f"peer-{VERSION}") -> Path:
    """The ``perago`` command of the package, installed the first time; ``PeerError`` if that fails.

    pip takes it, and all that it needs, from the index that the machine is configured for.
    """
    command = folder / "bin" / "perago"
    stamp = folder / ".installed"
    if not stamp.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], "make its environment")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
        _run(
            [*pip, "--disable-pip-version-check", "--no-input", f"perago=={VERSION}"],
            f"install perago {VERSION}",
        )
        stamp.touch()
    return command


def environment(variables: Mapping[str, str], modules: Path) -> dict[str, str]:
    """What a command of the package gets: the machine's own variables, and those it is given."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERAGO_", "PYTHON", "COV", "LAKECTL_", "CONDUCTOR_"))
    }
    # It does not look into the current folder for its task's module.
    return {**kept, **variables, "PYTHONPATH": str(modules)}


def _run(command: list[str], what: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        ran = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"could not {what}: {type(error).__name__}") from None
    if ran.returncode != 0:
        raise PeerError(f"could not {what}: {telling_line(ran.stderr or ran.stdout)}")


def telling_line(output: str) -> str:
    """The line of a tool's output that says why; addresses, which may hold credentials, go."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    found = [*errors[:1], *lines[-1:], "no reason given"][0]
    return _ADDRESS.sub("…", found)[:300]
