"""What is local: a scan of the data folder, and whether a file is still what was fetched."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import ProjectionError
from perago.transfer.inventory import ATTEMPT_MARKER

_HASH_PIECE = 1 << 20
_FINE_CLOCK_NS = 100_000_000
_COARSE_CLOCK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class StatRecord:
    """A file's identity according to the file system."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, result: os.stat_result) -> StatRecord:
        return cls(result.st_size, result.st_mtime_ns, result.st_ctime_ns, result.st_ino)

    def is_older_than(self, moment_ns: int) -> bool:
        """Old enough that a later write must show in it.

        A write within one tick of the file system's clock leaves the stamps as they were. Kernel
        ticks are a few milliseconds; some file systems keep whole seconds only.
        """
        coarse = self.ctime_ns % 1_000_000_000 == 0
        tick = _COARSE_CLOCK_NS if coarse else _FINE_CLOCK_NS
        return max(self.ctime_ns, self.mtime_ns) < moment_ns - tick


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file as it was right after its download."""

    record: StatRecord
    md5: str


@dataclass(frozen=True, slots=True)
class LocalTree:
    """The regular files and the folders of a data folder, by relative path."""

    files: dict[str, StatRecord]
    folders: frozenset[str]


def scan(folder: Path) -> LocalTree:
    """List a data folder. Refuses what cannot be published, naming it."""
    files: dict[str, StatRecord] = {}
    folders: set[str] = set()
    for path, record in scanned(folder):
        if record is None:
            folders.add(path)
        else:
            files[path] = record
    return LocalTree(files, frozenset(folders))


def scanned(folder: Path) -> Iterator[tuple[str, StatRecord | None]]:
    """The same one by one; a folder has no record."""
    for path, result in _walk(str(folder)):
        if stat.S_ISDIR(result.st_mode):
            yield path, None
        elif path != ATTEMPT_MARKER:
            yield path, StatRecord.of(result)


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder. A list of folders, not recursion: a body may nest very deep."""
    waiting = [(folder, "")]
    while waiting:
        folder, start = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = start + entry.name
                result = entry.stat(follow_symlinks=False)
                _refuse_special(path, result.st_mode)
                yield path, result
                if stat.S_ISDIR(result.st_mode):
                    waiting.append((entry.path, path + "/"))


def _refuse_special(path: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise ProjectionError(f"workspace publication does not support symlinks: {shown(path)}")
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise ProjectionError(
            f"workspace publication does not support sockets, pipes or devices: {shown(path)}"
        )


def shown(path: str) -> str:
    """A path as text that any log can take: names on disk need not be valid UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def hash_file(path: Path) -> str:
    """The MD5 of a file: what LakeFS calls the checksum of a plainly uploaded object."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_HASH_PIECE):
            digest.update(piece)
    return digest.hexdigest()
