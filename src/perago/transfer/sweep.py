"""Remove attempt directories whose execution has ended, and nothing else.

A live execution holds the lock of its directory, so the lock is always taken first. The marker
says which host made the directory: one without a marker is kept, and so is one of another host on a
shared root, unless a sweep is asked for those in which nothing has changed for some time. Several
workers may sweep one root at the same time.
"""

from __future__ import annotations

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
from perago.text import as_utf8, quote_path, shorten
from perago.transfer.inventory import ATTEMPT_MARKER
from perago.transfer.locking import lock_within
from perago.transfer.removal import OPEN_FOLDER, opened_folder
from perago.transfer.workspaces import (
    KEPT_PREFIX,
    LOCK_FILE,
    NEW_PREFIX,
    directory_name,
    remove_directory,
)

# Making a directory takes milliseconds; one that is still incomplete after this is abandoned.
_INCOMPLETE_SECONDS = 600.0
_LOCK_RETRY_SECONDS = 0.05
# A start does not wait longer for all removals together; the next sweep goes on.
_SWEEP_SECONDS = 300.0
# Longer than any marker that was ever written.
_MAX_MARKER_BYTES = 1 << 16
_LONGEST_REASON = 500


class Fate(StrEnum):
    """The result of sweeping one directory."""

    REMOVED = "removed"
    REMOVABLE = "removable"  # a dry run found it
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


def sweep(
    root: Path, *, other_hosts_after: float | None = None, dry_run: bool = False
) -> SweepReport:
    """Remove the directories of ended executions of this host; report failures, raise none.

    With ``other_hosts_after``, also those of other hosts in which nothing has changed for so many
    seconds: a lock may not reach from host to host. A dry run removes nothing. A directory whose
    removal is not finished within the time is reported as a failure.
    """
    deadline = time.monotonic() + _SWEEP_SECONDS
    try:
        with os.scandir(root) as entries:
            # A link is never followed: it may lead anywhere.
            folders = [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return SweepReport()
    except OSError as error:
        return SweepReport((Swept(root, Fate.FAILED, str(error)),))
    options: dict[str, Any] = {"other_hosts_after": other_hosts_after, "dry_run": dry_run}
    return SweepReport(
        tuple(
            _sweep_one(folder, seconds=deadline - time.monotonic(), **options)
            for folder in sorted(folders)
        )
    )


def clear(
    root: Path, execution: Execution, *, seconds: float = 5.0, removal_seconds: float = 10.0
) -> SweepReport:
    """Remove the directory of one execution whose processes have ended.

    The kernel releases the lock of a killed process shortly after its end, so this waits for it.
    """
    name = directory_name(execution)
    paths = (root / name, root / f"{NEW_PREFIX}{name}")
    # Unlike the method of a path, this raises for no name, however long.
    folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
    return _clear(folders, seconds, removal_seconds)


def clear_kept(
    root: Path, pid: int, *, seconds: float = 5.0, removal_seconds: float = 10.0
) -> SweepReport:
    """Remove the directories that an executor has kept, of which no process holds the lock.

    Its process has ended, or its own removal took too long; ``seconds`` are as for ``clear``.
    """
    try:
        with os.scandir(root) as entries:
            start = f"{KEPT_PREFIX}{pid}-"
            folders = [Path(entry) for entry in entries if entry.name.startswith(start)]
    except FileNotFoundError:
        return SweepReport()
    return _clear(folders, seconds, removal_seconds)


def _clear(folders: list[Path], wait: float, seconds: float) -> SweepReport:
    limits: dict[str, Any] = {"wait": wait, "youngest": 0.0, "seconds": seconds}
    return SweepReport(tuple(_sweep_one(folder, **limits) for folder in folders))


def _sweep_one(
    folder: Path,
    *,
    seconds: float,
    wait: float = 0.0,
    youngest: float = _INCOMPLETE_SECONDS,
    other_hosts_after: float | None = None,
    dry_run: bool = False,
) -> Swept:
    try:
        with opened_folder(folder) as top:
            kept = _kept(folder, top, youngest, other_hosts_after)
            if kept is not None:
                return kept
            with _locked(top, wait) as locked:
                if not locked:
                    return Swept(folder, Fate.LIVE, "an execution holds its lock")
                if dry_run:
                    return Swept(folder, Fate.REMOVABLE)
                remove_directory(folder, top, seconds=seconds)
    except Exception as error:  # noqa: BLE001  one directory never ends the sweep of the others
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return Swept(folder, Fate.GONE)
        reason = as_utf8(f"{type(error).__name__}: {error}")
        return Swept(folder, Fate.FAILED, shorten(reason, _LONGEST_REASON))
    return Swept(folder, Fate.REMOVED)


@dataclass(frozen=True, slots=True)
class _Marker:
    """What a sweep needs of a marker; None for a number that is missing or is none."""

    host: str
    boot: int | None
    pid: int | None


def _kept(folder: Path, top: int, youngest: float, other_hosts_after: float | None) -> Swept | None:
    """Return why a directory is kept whatever the state of its lock, or None."""
    marker = _read_marker(top)
    incomplete = folder.name.startswith(NEW_PREFIX)
    if marker is None and not (incomplete and _holds_no_data(top)):
        return Swept(folder, Fate.UNMARKED, f"no readable {ATTEMPT_MARKER}")
    if marker is not None and marker.host != socket.gethostname():
        where = f"made on host {quote_path(marker.host)}"
        if other_hosts_after is None:
            return Swept(folder, Fate.FOREIGN, where)
        if _changed_since(top, time.time() - other_hosts_after):
            return Swept(folder, Fate.YOUNG, f"{where}, and changed not long ago")
    # A marked directory is locked as long as it is being made or removed: the lock decides.
    if marker is None and time.time() - os.fstat(top).st_mtime < youngest:
        return Swept(folder, Fate.YOUNG, "possibly being made or removed")
    return None


def _read_marker(top: int) -> _Marker | None:
    """Read the marker of an open directory; None if there is none or it is damaged."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(ATTEMPT_MARKER, flags, dir_fd=top)
    except FileNotFoundError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.read(descriptor, _MAX_MARKER_BYTES) if is_file else b""
    finally:
        os.close(descriptor)
    try:
        marker = json.loads(text)
    # Killed while writing it, or damaged: no JSON, not UTF-8, nested too deep.
    except (ValueError, RecursionError):
        return None
    if not isinstance(marker, dict) or "execution_id" not in marker:
        return None
    host, boot, pid = (marker.get(name) for name in ("host", "boot", "pid"))
    if not isinstance(host, str):
        return None
    return _Marker(host, boot if type(boot) is int else None, pid if type(pid) is int else None)


def _changed_since(top: int, moment: float) -> bool:
    """Return whether anything in an open directory has changed after a moment.

    The change time counts, because a program can set the modification time.
    """
    return any(found.st_ctime > moment for found in _everything_in(top))


def _everything_in(top: int) -> Iterator[os.stat_result]:
    """Look at an open directory and all in it, by descriptor and so at any depth.

    Of a folder that cannot be read nothing but the folder itself is looked at.
    """
    yield os.fstat(top)
    # The names of the folders that are left, for each level down to the open one.
    levels: list[list[str]] = [[]]
    here = os.open(".", OPEN_FOLDER, dir_fd=top)
    try:
        yield from _entries_of(here, levels[-1])
        while levels:
            if levels[-1]:
                there = _entered(levels[-1].pop(), here)
                if there is not None:
                    here = _instead_of(here, there)
                    levels.append([])
                    yield from _entries_of(here, levels[-1])
                continue
            levels.pop()
            if levels:
                here = _instead_of(here, os.open("..", OPEN_FOLDER, dir_fd=here))
    finally:
        os.close(here)


def _entered(name: str, folder: int) -> int | None:
    """Open a folder in an open one; None if it cannot be read, or not be left again."""
    try:
        with opened_folder(name, folder) as found:
            os.stat("..", dir_fd=found)
            return os.dup(found)
    except PermissionError:
        return None


def _instead_of(before: int, now: int) -> int:
    os.close(before)
    return now


def _entries_of(folder: int, folders: list[str]) -> Iterator[os.stat_result]:
    """Look at what is directly in an open folder, and note the names of the folders."""
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                folders.append(entry.name)
            yield found


def _holds_no_data(top: int) -> bool:
    """Return whether a directory holds nothing but its marker and its lock."""
    with os.scandir(top) as entries:
        return all(entry.name in {LOCK_FILE, ATTEMPT_MARKER} for entry in entries)


@contextmanager
def _locked(top: int, wait: float) -> Iterator[bool]:
    """Hold the lock of a directory within the block; yield False if another process holds it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(LOCK_FILE, flags, dir_fd=top)
    except FileNotFoundError:
        yield not _owner_may_live(top)
        return
    try:
        taken = lock_within(descriptor, wait, pause=_LOCK_RETRY_SECONDS)
        if taken:
            # Another sweeper may have removed the file after it was opened and before the lock.
            current = os.stat(LOCK_FILE, dir_fd=top, follow_symlinks=False)
            if not os.path.samestat(current, os.fstat(descriptor)):
                raise FileNotFoundError("the lock was replaced")
        yield taken
    finally:
        os.close(descriptor)


def _owner_may_live(top: int) -> bool:
    """Return whether the process named by the marker may run, where there is no lock file."""
    marker = _read_marker(top)
    if marker is None or marker.boot not in {None, int(psutil.boot_time())}:
        return False
    try:
        return marker.pid is None or psutil.pid_exists(marker.pid)
    except OverflowError:  # no process has such a number
        return False
