"""The local side: scans of the data folder, and records that show whether a file changed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perago.errors import ProjectionError
from perago.text import show_path
from perago.transfer.inventory import ATTEMPT_MARKER
from perago.transfer.subtrees import WHOLE, Subtree

# By so much a record must be older than the body's start, which the same file system's clock tells
# (LocalDirectory.touch). Where one clock gives all times, any difference at all is enough: what is
# written later has a later time. Where the touch has a finer clock than writes, these may be behind
# it: by a tick of the kernel (10 ms at most) and by what the file system rounds off, which is 10 ms
# on exFAT and less elsewhere, unless it stores whole seconds.
FINE_TICK_NS = 30_000_000
# For whole seconds, and for FAT's two.
COARSE_TICK_NS = 2_000_000_000
# What was scanned is gone, or something else is in its place.
_REPLACED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class StatRecord(NamedTuple):
    """A file's identity according to the file system.

    A tuple: it is made and compared several times for every file.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, result: os.stat_result) -> StatRecord:
        return cls(result.st_size, result.st_mtime_ns, result.st_ctime_ns, result.st_ino)

    def is_older_than(self, moment_ns: int) -> bool:
        """Return whether the record is so old that a write after that moment must change it.

        A write within one tick of the file system's clock does not change the time stamps. Kernel
        ticks are a few milliseconds; some file systems store whole seconds only.
        """
        return self.aged_ns() < moment_ns

    def aged_ns(self) -> int:
        """Return the moment after which the record is older than the file system's clock tells."""
        coarse = self.ctime_ns % 1_000_000_000 == 0
        tick = COARSE_TICK_NS if coarse else FINE_TICK_NS
        return max(self.ctime_ns, self.mtime_ns) + tick


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file as it was right after its download."""

    record: StatRecord
    # Of its content; or the object's checksum, which may be a token.
    digest: str
    is_hashed: bool = True


@dataclass(frozen=True, slots=True)
class LocalTree:
    """The regular files and the folders of a data folder, by relative path."""

    files: dict[str, StatRecord]
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class LocalEntry:
    """One entry of a data folder: a file has a record, and a folder has none."""

    path: str
    record: StatRecord | None = None
    # What it is, if it is neither and so cannot be published.
    special: str | None = None


def scan(folder: Path) -> LocalTree:
    """List a data folder. Raises ``ProjectionError`` for a symlink, socket, pipe or device."""
    return _tree(scanned(folder))


def scan_within(folder: Path, most: int) -> LocalTree | None:
    """List a data folder as ``scan`` does, or return None if it has more than ``most`` entries."""
    entries = list(islice(scanned(folder), most + 1))
    return _tree(entries) if len(entries) <= most else None


def _tree(entries: Iterable[LocalEntry]) -> LocalTree:
    files: dict[str, StatRecord] = {}
    folders: set[str] = set()
    specials: list[tuple[str, str]] = []
    for entry in entries:
        if entry.special is not None:
            specials.append((entry.path, entry.special))
        elif entry.record is None:
            folders.add(entry.path)
        else:
            files[entry.path] = entry.record
    refuse_special(specials)
    return LocalTree(files, frozenset(folders))


def scanned(folder: Path, subtree: Subtree = WHOLE) -> Iterator[LocalEntry]:
    """List a data folder, or a subtree of it, one entry at a time."""
    for path, result in _walk(folder, subtree):
        if stat.S_ISDIR(result.st_mode):
            yield LocalEntry(path)
        elif stat.S_ISLNK(result.st_mode):
            yield LocalEntry(path, special="symlinks")
        elif not stat.S_ISREG(result.st_mode):
            yield LocalEntry(path, special="sockets, pipes or devices")
        elif path != ATTEMPT_MARKER:
            yield LocalEntry(path, StatRecord.of(result))


def refuse_special(specials: Iterable[tuple[str, str]]) -> None:
    """Raise ``ProjectionError`` for the first by path, if there are any."""
    if first := min(specials, default=None):
        path, what = first
        raise ProjectionError(
            f"workspace publication does not support {what}: {show_path(path)}",
            hint="Put a file with the content in its place, or remove it before the task returns.",
        )


def level(folder: Path, start: str) -> Iterator[str]:
    """List the paths directly in a folder, those of folders with a slash at the end."""
    with reading(start[:-1] or "."), os.scandir(_inside(folder, start)) as entries:
        for entry in entries:
            slash = "/" if entry.is_dir(follow_symlinks=False) else ""
            yield f"{start}{entry.name}{slash}"


def _walk(folder: Path, subtree: Subtree) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything in a subtree. Without recursion: a body may nest folders very deep."""
    waiting = [subtree.start]
    while waiting:
        start = waiting.pop()
        with _open_folder(folder, start) as entries:
            for entry in entries:
                path = start + entry.name
                result = entry.stat(follow_symlinks=False)
                yield path, result
                if subtree.is_deep and stat.S_ISDIR(result.st_mode):
                    waiting.append(f"{path}/")


@contextmanager
def _open_folder(folder: Path, start: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a folder of a tree; what is too deep to be named by a path cannot be an object."""
    try:
        with reading(start[:-1] or "."), os.scandir(_inside(folder, start)) as entries:
            yield entries
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise ProjectionError(
            f"a folder is nested too deep to be published: {show_path(start)}"
        ) from None


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Say which file or folder is gone or cannot be read; other errors are the machine's."""
    try:
        yield
    except PermissionError:
        raise ProjectionError(
            f"a file or folder cannot be read: {show_path(path)}",
            hint="The body must leave what it writes readable for the worker's user.",
        ) from None
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
        raise changed_meanwhile(path) from None


def changed_meanwhile(path: str) -> ProjectionError:
    """Build the error for what a process of the body still writes: it could be half-written."""
    return ProjectionError(
        f"a file changed while it was being published: {show_path(path)}",
        hint="The body must wait for every process and thread it starts.",
    )


def _inside(folder: Path, start: str) -> str:
    return f"{folder}/{start[:-1]}" if start else str(folder)


def write_all(descriptor: int, piece: memoryview) -> int:
    """Write a piece and return its length; an unbuffered write may write only part of it."""
    written = os.write(descriptor, piece)
    while written < len(piece):
        written += os.write(descriptor, piece[written:])
    return written
