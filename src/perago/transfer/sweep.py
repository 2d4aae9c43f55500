"""Clear away attempt directories whose execution is gone, and nothing else.

What says that an execution lives is the lock it holds, so the lock is always taken first. The
marker says whose the directory is: one without it, or one of another host on a shared root, is
left alone. Several workers may sweep one root at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from perago.protocol.identity import Execution
from perago.transfer.inventory import ATTEMPT_MARKER
from perago.transfer.workspaces import LOCK_FILE, NEW_PREFIX, directory_name, remove_directory

# Making a directory takes milliseconds; one that is still unfinished after this was abandoned.
_UNFINISHED_SECONDS = 600.0
_TRY_AGAIN_SECONDS = 0.05


class Fate(StrEnum):
    """What became of one directory."""

    REMOVED = "removed"
    GONE = "gone"  # somebody else removed it meanwhile
    LIVE = "live"
    FOREIGN = "foreign"
    UNMARKED = "unmarked"
    YOUNG = "young"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Swept:
    """One directory below the root, and what was done about it."""

    path: Path
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Every directory that a sweep looked at."""

    entries: tuple[Swept, ...] = ()

    def of(self, fate: Fate) -> list[Path]:
        """The directories with one fate."""
        return [entry.path for entry in self.entries if entry.fate is fate]

    @property
    def failures(self) -> list[Swept]:
        return [entry for entry in self.entries if entry.fate is Fate.FAILED]


def sweep(root: Path) -> SweepReport:
    """Remove what dead executions of this host left below ``root``. Never raises for a failure."""
    try:
        with os.scandir(root) as entries:
            # A link is never followed: it may lead to anything.
            folders = [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return SweepReport()
    except OSError as error:
        return SweepReport((Swept(root, Fate.FAILED, str(error)),))
    return SweepReport(tuple(_sweep_one(folder) for folder in sorted(folders)))


def clear(root: Path, execution: Execution, *, seconds: float = 5.0) -> SweepReport:
    """Remove the directory of one execution whose processes have ended.

    The kernel lets go of a killed process's lock a moment after it is gone, hence the wait.
    """
    name = directory_name(execution)
    found = [folder for folder in (root / name, root / f"{NEW_PREFIX}{name}") if folder.is_dir()]
    return SweepReport(tuple(_sweep_one(folder, wait=seconds, youngest=0.0) for folder in found))


def _sweep_one(folder: Path, *, wait: float = 0.0, youngest: float = _UNFINISHED_SECONDS) -> Swept:
    try:
        kept = _why_not_ours(folder, youngest)
        if kept is not None:
            return kept
        with _locked(folder, wait) as locked:
            if not locked:
                return Swept(folder, Fate.LIVE, "an execution holds its lock")
            remove_directory(folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return Swept(folder, Fate.GONE)
        return Swept(folder, Fate.FAILED, f"{type(error).__name__}: {error}")
    return Swept(folder, Fate.REMOVED)


def _why_not_ours(folder: Path, youngest: float) -> Swept | None:
    """Why a directory is left alone whatever its lock says, or None."""
    marker = _read_marker(folder)
    unfinished = folder.name.startswith(NEW_PREFIX)
    if marker is None and not (unfinished and _holds_no_data(folder)):
        return Swept(folder, Fate.UNMARKED, f"no readable {ATTEMPT_MARKER}")
    if marker is not None and marker.get("host") != socket.gethostname():
        return Swept(folder, Fate.FOREIGN, f"made on host {marker.get('host')!r}")
    if unfinished and time.time() - folder.lstat().st_mtime < youngest:
        return Swept(folder, Fate.YOUNG, "perhaps just being made or removed")
    return None


def _read_marker(folder: Path) -> dict[str, Any] | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(folder / ATTEMPT_MARKER, flags)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            marker = json.loads(file.read(1 << 16))
        except ValueError:  # killed while writing it
            return None
    return marker if isinstance(marker, dict) and "execution_id" in marker else None


def _holds_no_data(folder: Path) -> bool:
    """Whether this is a directory as it is before its marker is complete."""
    return {entry.name for entry in folder.iterdir()} <= {LOCK_FILE, ATTEMPT_MARKER}


@contextmanager
def _locked(folder: Path, wait: float) -> Iterator[bool]:
    """Hold the lock of a directory; False when somebody else does."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(folder / LOCK_FILE, flags)
    except FileNotFoundError:
        yield not _owner_may_live(folder)
        return
    try:
        taken = _take(descriptor, wait)
        if taken:
            # Another sweeper may have removed the file between our opening and locking it.
            there = (folder / LOCK_FILE).lstat()
            if not os.path.samestat(there, os.fstat(descriptor)):
                raise FileNotFoundError(f"the lock of {folder} was replaced")
        yield taken
    finally:
        os.close(descriptor)


def _take(descriptor: int, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_TRY_AGAIN_SECONDS)
        else:
            return True


def _owner_may_live(folder: Path) -> bool:
    """Without a lock file (a body removed it, a kill came before it) the process decides."""
    marker = _read_marker(folder)
    if marker is None or marker.get("boot") != int(psutil.boot_time()):
        return False
    pid = marker.get("pid")
    return not isinstance(pid, int) or psutil.pid_exists(pid)
