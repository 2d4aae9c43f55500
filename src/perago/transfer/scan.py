"""What is local: a scan of the data folder, and whether a file is still what was fetched."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import ProjectionError
from perago.transfer.inventory import ATTEMPT_MARKER
from perago.transfer.subtrees import WHOLE, Subtree

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


@dataclass(frozen=True, slots=True)
class Found:
    """One thing in a data folder: a file has a record, and a folder has none."""

    path: str
    record: StatRecord | None = None
    # What else it is, which nobody can publish.
    special: str | None = None


def scan(folder: Path) -> LocalTree:
    """List a data folder. Refuses what cannot be published, naming it."""
    files: dict[str, StatRecord] = {}
    folders: set[str] = set()
    specials: list[tuple[str, str]] = []
    for found in scanned(folder):
        if found.special is not None:
            specials.append((found.path, found.special))
        elif found.record is None:
            folders.add(found.path)
        else:
            files[found.path] = found.record
    refuse_special(specials)
    return LocalTree(files, frozenset(folders))


def scanned(folder: Path, unit: Subtree = WHOLE) -> Iterator[Found]:
    """What is in a data folder, or in a unit of it, one by one."""
    for path, result in _walk(folder, unit):
        if stat.S_ISDIR(result.st_mode):
            yield Found(path)
        elif stat.S_ISLNK(result.st_mode):
            yield Found(path, special="symlinks")
        elif not stat.S_ISREG(result.st_mode):
            yield Found(path, special="sockets, pipes or devices")
        elif path != ATTEMPT_MARKER:
            yield Found(path, StatRecord.of(result))


def refuse_special(found: Iterable[tuple[str, str]]) -> None:
    """Raise the error for the first by path, in whatever order they were found."""
    if first := min(found, default=None):
        path, what = first
        raise ProjectionError(f"workspace publication does not support {what}: {shown(path)}")


def level(folder: Path, start: str) -> Iterator[str]:
    """The paths directly in a folder of a data folder, those of folders with a slash at the end."""
    with os.scandir(_inside(folder, start)) as entries:
        for entry in entries:
            slash = "/" if entry.is_dir(follow_symlinks=False) else ""
            yield f"{start}{entry.name}{slash}"


def _walk(folder: Path, unit: Subtree) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a unit. A list of folders, not recursion: a body may nest very deep."""
    waiting = [unit.start]
    while waiting:
        start = waiting.pop()
        with os.scandir(_inside(folder, start)) as entries:
            for entry in entries:
                path = start + entry.name
                result = entry.stat(follow_symlinks=False)
                yield path, result
                if unit.is_deep and stat.S_ISDIR(result.st_mode):
                    waiting.append(f"{path}/")


def _inside(folder: Path, start: str) -> str:
    return f"{folder}/{start[:-1]}" if start else str(folder)


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
