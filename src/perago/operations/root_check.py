"""Check the folder below which attempts work, for `perago doctor`."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perago.observability.readiness import disk_problems, nearest_folder
from perago.operations.findings import Finding
from perago.settings import Settings

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def check_root(settings: Settings) -> Iterator[Finding]:
    """Check the folder of the workspaces: its space, its mode, and that files can be locked."""
    check, root = "workspace root", settings.workspace_root
    hint = "Free some space, or set PERAGO_WORKSPACE_ROOT to a folder on another disk."
    problems = [
        Finding(check, False, problem, hint)
        for problem in disk_problems(root, settings.min_free_bytes)
    ]
    folder = nearest_folder(root)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        hint = "Set PERAGO_WORKSPACE_ROOT to a folder of this user."
        problems.append(Finding(check, False, f"{folder} cannot be written to", hint))
    elif folder == root:
        problems += _check_folder(check, root)
    yield from problems
    if not problems:
        state = "has room, and files in it can be locked" if folder == root else "will be made"
        yield Finding(check, True, f"{root} {state}")


def _check_folder(check: str, root: Path) -> Iterator[Finding]:
    if root.stat().st_mode & _WRITABLE_BY_OTHERS:
        hint = f"Run: chmod go-w {shlex.quote(str(root))}"
        yield Finding(check, False, f"other users can write to {root}", hint)
    if not can_lock(root):
        yield Finding(
            check,
            False,
            f"files in {root} cannot be locked, so a sweep could remove a running attempt's",
            "Set PERAGO_WORKSPACE_ROOT to a local disk, or mount the share with locks.",
        )


def can_lock(folder: Path) -> bool:
    """Whether a file that one open descriptor has locked is locked for another one."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".perago-doctor-") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        with Path(file.name).open("rb") as other:
            try:
                fcntl.flock(other.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
    return False
