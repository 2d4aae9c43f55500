"""Remove attempt directories whose execution has ended, and nothing else.

A live execution holds the lock of its directory, so the lock is always taken first. The marker
says which host made the directory: one without a marker, or of another host on a shared root, is
kept. Several workers may sweep one root at the same time.
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

# Making a directory takes milliseconds; one that is still incomplete after this is abandoned.
_INCOMPLETE_SECONDS = 600.0
_LOCK_RETRY_SECONDS = 0.05


class Fate(StrEnum):
    """The result of sweeping one directory."""

    REMOVED = "removed"
    GONE = "gone"  # another process removed it first
    LIVE = "live"
    FOREIGN = "foreign"
    UNMARKED = "unmarked"
    YOUNG = "young"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Swept:
    """One directory below the root, and the result of sweeping it."""

    path: Path
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Every directory that a sweep checked."""

    entries: tuple[Swept, ...] = ()

    def of(self, fate: Fate) -> list[Path]:
        """Return the directories with one fate."""
        return [entry.path for entry in self.entries if entry.fate is fate]

    @property
    def failures(self) -> list[Swept]:
        return [entry for entry in self.entries if entry.fate is Fate.FAILED]


def sweep(root: Path) -> SweepReport:
    """Remove the directories of ended executions of this host; report failures, raise none."""
    try:
        with os.scandir(root) as entries:
            # A link is never followed: it may lead anywhere.
            folders = [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return SweepReport()
    except OSError as error:
        return SweepReport((Swept(root, Fate.FAILED, str(error)),))
    return SweepReport(tuple(_sweep_one(folder) for folder in sorted(folders)))


def clear(root: Path, execution: Execution, *, seconds: float = 5.0) -> SweepReport:
    """Remove the directory of one execution whose processes have ended.

    The kernel releases the lock of a killed process shortly after its end, so this waits for it.
    """
    name = directory_name(execution)
    folders = [path for path in (root / name, root / f"{NEW_PREFIX}{name}") if path.is_dir()]
    return SweepReport(tuple(_sweep_one(folder, wait=seconds, youngest=0.0) for folder in folders))


def _sweep_one(folder: Path, *, wait: float = 0.0, youngest: float = _INCOMPLETE_SECONDS) -> Swept:
    try:
        kept = _kept(folder, youngest)
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


def _kept(folder: Path, youngest: float) -> Swept | None:
    """Return why a directory is kept whatever the state of its lock, or None."""
    marker = _read_marker(folder)
    incomplete = folder.name.startswith(NEW_PREFIX)
    if marker is None and not (incomplete and _holds_no_data(folder)):
        return Swept(folder, Fate.UNMARKED, f"no readable {ATTEMPT_MARKER}")
    if marker is not None and marker.get("host") != socket.gethostname():
        return Swept(folder, Fate.FOREIGN, f"made on host {marker.get('host')!r}")
    if incomplete and time.time() - folder.lstat().st_mtime < youngest:
        return Swept(folder, Fate.YOUNG, "possibly being made or removed")
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
    """Return whether a directory holds nothing but its marker and its lock."""
    return {entry.name for entry in folder.iterdir()} <= {LOCK_FILE, ATTEMPT_MARKER}


@contextmanager
def _locked(folder: Path, wait: float) -> Iterator[bool]:
    """Hold the lock of a directory within the block; yield False if another process holds it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(folder / LOCK_FILE, flags)
    except FileNotFoundError:
        yield not _owner_may_live(folder)
        return
    try:
        taken = _take(descriptor, wait)
        if taken:
            # Another sweeper may have removed the file after it was opened and before the lock.
            current = (folder / LOCK_FILE).lstat()
            if not os.path.samestat(current, os.fstat(descriptor)):
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
            time.sleep(_LOCK_RETRY_SECONDS)
        else:
            return True


def _owner_may_live(folder: Path) -> bool:
    """Return whether the process named by the marker may run, where there is no lock file."""
    marker = _read_marker(folder)
    if marker is None or marker.get("boot") != int(psutil.boot_time()):
        return False
    pid = marker.get("pid")
    return not isinstance(pid, int) or psutil.pid_exists(pid)
