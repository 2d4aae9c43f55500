"""The space of the object cache: the bytes in use, their limit, and eviction.

Any number of processes share it. A file holds the number of bytes in use, and is locked while that
number changes and while files are evicted. A process counts what it will use before it uses it, so
one that dies leaves too much counted; the next eviction counts anew. It does not see what others
have counted and not yet used, so the limit can be exceeded by that: 16 MiB for each process.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perago.transfer.locking import lock_within

# Files take whole blocks of the disk.
BLOCK = 4096
# The default limit: this share of what is free, and at most what is evicted within seconds.
_SHARE, _MOST_BY_DEFAULT = 10, 32 << 30
# What a process counts at a time, so that it seldom needs the lock, and at most this part.
_CREDIT, _CREDIT_PART = 16 << 20, 64
# Evicting leaves this part of the limit, so that it is seldom needed.
_KEPT = 0.8
# A file larger than this part of the limit would push out too many others.
_LARGEST_PART = 4
_LOCK_SECONDS, _LOCK_RETRY_SECONDS = 0.05, 0.001
_CLEAR_SECONDS = 30.0
# Where nothing could be evicted to make room, nothing is tried for so long.
_FULL_SECONDS = 60.0
# The order of use is as exact as this; a file that is used often is not marked each time.
_USE_SECONDS = 60.0
_USAGE = "usage"
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_USAGE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """How many files a cache has, and the bytes that they take on disk."""

    files: int
    size: int


class CacheSpace:
    """Counts what is used of a folder's limit, and evicts what was not used for the longest time.

    The files are two levels below the folder. Thread-safe.
    """

    def __init__(self, folder: Path, limit: int | None, min_free: int) -> None:
        """Describe the space of a folder that exists when another method is called.

        Without ``limit`` (bytes) it is a share of the free disk. With less than ``min_free`` bytes
        free on the disk, files are evicted whatever the limit is.
        """
        self._folder = folder
        self._limit = limit
        self._min_free = min_free
        self._lock = threading.Lock()
        # Bytes that this process has counted and not yet used.
        self._credit = 0
        self._full_until = 0.0
        self._evictions = 0

    @cached_property
    def limit(self) -> int:
        """The most bytes that files may take."""
        if self._limit is not None:
            return self._limit
        with self._usage(_LOCK_SECONDS) as usage:
            used = (usage is not None and _read_number(usage)) or 0
        return min(_MOST_BY_DEFAULT, (self._free() + used) // _SHARE)

    @property
    def portion(self) -> int:
        """What a process counts at a time; a pack is at most as large."""
        return min(_CREDIT, self.limit // _CREDIT_PART)

    def reserve(self, amount: int) -> bool:
        """Count bytes that will be written; return whether there is room for them.

        Raises ``OSError`` if the folder cannot be used.
        """
        if amount > self.limit // _LARGEST_PART:
            return False
        with self._lock:
            if amount > self._credit and not self._extend(amount):
                return False
            self._credit -= amount
        return True

    def allows(self, size: int, folder: Path) -> bool:
        """Return whether so many bytes may stay in another folder for a while.

        They are not counted, but the same two limits hold. Raises ``OSError`` as ``reserve`` does.
        """
        return size <= self.limit and shutil.disk_usage(folder).free >= self._min_free

    def take_evictions(self) -> int:
        """Return how many files this process evicted since the last call."""
        with self._lock:
            taken, self._evictions = self._evictions, 0
        return taken

    def status(self) -> CacheStatus:
        """Count all files."""
        sizes = [size for _, size, _ in self._files()]
        return CacheStatus(len(sizes), sum(sizes))

    def clear(self) -> CacheStatus:
        """Remove all files; return what was there. Raises ``OSError`` if others hold the lock."""
        with self._usage(_CLEAR_SECONDS) as usage:
            if usage is None:
                raise TimeoutError("another process holds the lock of the object cache")
            sizes = [size for path, size, _ in self._files() if unlinked(path)]
            _write_number(usage, 0)
        return CacheStatus(len(sizes), sum(sizes))

    def _extend(self, amount: int) -> bool:
        """Take more credit; evict files where there is too little room for it."""
        if time.monotonic() < self._full_until:
            return False
        wanted = max(amount, self.portion)
        with self._usage(_LOCK_SECONDS) as usage:
            if usage is None:
                # Another process evicts. What is not kept now is kept another time.
                return False
            used = _read_number(usage)
            if used is None:
                used = self.status().size
            limit = max(0, min(self.limit, used + self._free() - self._min_free))
            if used + wanted > limit:
                used = self._evict(int(limit * _KEPT) - wanted)
            has_room = used + wanted <= limit
            _write_number(usage, used + wanted if has_room else used)
        if has_room:
            self._credit += wanted
        else:
            self._full_until = time.monotonic() + _FULL_SECONDS
        return has_room

    def _evict(self, goal: int) -> int:
        """Remove files until at most ``goal`` bytes are left; return the bytes that are."""
        files = sorted(self._files(), key=lambda file: file[2])
        left = sum(size for _, size, _ in files)
        for path, size, _ in files:
            if left <= goal:
                break
            if unlinked(path):
                left -= size
                self._evictions += 1
        return left

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """List the path of each file, the bytes that it takes, and when it was last used."""
        for kind in _folders_in(str(self._folder)):
            for folder in _folders_in(kind):
                with suppress(FileNotFoundError), os.scandir(folder) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):
                            found = entry.stat(follow_symlinks=False)
                            yield entry.path, on_disk(found.st_size), found.st_mtime_ns

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free

    @contextmanager
    def _usage(self, seconds: float) -> Iterator[int | None]:
        """Open and lock the file with the number within the block; None if others hold it."""
        descriptor = os.open(self._folder / _USAGE, _USAGE_FLAGS, 0o600)
        try:
            yield (
                descriptor if lock_within(descriptor, seconds, pause=_LOCK_RETRY_SECONDS) else None
            )
        finally:
            os.close(descriptor)


def make_folder(path: str) -> None:
    """Make the folder that a file of the cache is in."""
    with suppress(FileExistsError):
        os.mkdir(path.rpartition("/")[0], 0o700)  # noqa: PTH102


@contextmanager
def created(path: str) -> Iterator[int | None]:
    """Create a file within the block, and remove it if the block fails; None if it exists."""
    try:
        descriptor = create_file(path)
    except FileExistsError:
        yield None
        return
    try:
        yield descriptor
    except BaseException:
        unlinked(path)
        raise
    finally:
        os.close(descriptor)


def create_file(path: str) -> int:
    """Create and open a file of the cache, with its folder if that is missing."""
    try:
        return os.open(path, _CREATE, 0o600)
    except FileNotFoundError:
        make_folder(path)
        return os.open(path, _CREATE, 0o600)


def unlinked(path: str) -> bool:
    """Remove a file; return whether it was there and is gone."""
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return False
    return True


def mark_used(descriptor: int, found: os.stat_result) -> None:
    """Note that an open file is used now, unless that was noted a moment ago."""
    if not 0 <= time.time() - found.st_mtime < _USE_SECONDS:
        with suppress(OSError):
            os.utime(descriptor)


def _folders_in(folder: str) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def on_disk(size: int) -> int:
    """Return the bytes that a file takes."""
    return max(1, -(-size // BLOCK)) * BLOCK


def _read_number(usage: int) -> int | None:
    """Read the bytes in use; None if they were never counted, or the number is damaged."""
    text = os.pread(usage, BLOCK, 0).strip()
    return int(text) if text.isdigit() else None


def _write_number(usage: int, number: int) -> None:
    os.ftruncate(usage, os.pwrite(usage, f"{number}\n".encode(), 0))
