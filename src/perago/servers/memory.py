"""How much memory this process may use, and sizes as Java spells them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

MIB = 1 << 20
GIB = 1 << 30
_PROC = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_SIZE = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}


def usable_memory() -> int:
    """Return the bytes of this machine, or of this process's control group if that has fewer."""
    limits = control_group_limits(_PROC, _CGROUPS)
    return min([psutil.virtual_memory().total, *limits])


def control_group_limits(proc: Path, root: Path) -> Iterator[int]:
    """Yield the memory limits of a process's control groups, of version 1 and 2, and above them.

    A container often sees its own group as the root, under the name that it has outside: a folder
    that is not there is passed over, and the root is always looked at.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            folder, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for part in (inside, *inside.parents):
            if (limit := _read_limit(folder / part / name)) is not None:
                yield limit


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def read_size(text: str) -> int | None:
    """Read ``512m`` or ``2g`` as bytes; a number alone counts mebibytes. None if it is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    return int(found[1]) * _UNITS[found[2].lower() or "m"]


def write_size(size: int) -> str:
    """Write bytes as Java reads them, in whole mebibytes."""
    return f"{size // MIB}m"
