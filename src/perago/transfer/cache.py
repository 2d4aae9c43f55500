"""The object cache: contents that this host has downloaded or uploaded, kept on its disk.

An entry is a content of one repository that is found by its size and digest: a small one in a pack
(:mod:`perago.transfer.cache_packs`), a large one in a file that is named after them. A reader
computes the digest again, so nothing else has to hold for safety: an entry that is torn by a
crash or changed by a program is a miss, and is removed. A workspace gets a copy or a clone of an
entry, never the file itself.

LakeFS does not check the checksum of an object that a client links. So server and repository are
part of an entry's key: who may write to one repository cannot take what is in another.

A workspace keeps its large files until it is over, and leaves them to the cache then
(:mod:`perago.transfer.cache_inheritance`).

A large object whose checksum is no digest (another tool uploaded it in its own parts) is found by
an alias (:mod:`perago.transfer.cache_aliases`).

Any number of processes share a cache. An entry that is evicted while it is read stays readable.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perago.text import as_utf8, show_path
from perago.transfer.cache_aliases import ALIASES, Aliases, seal
from perago.transfer.cache_inheritance import Inheritance
from perago.transfer.cache_packs import LARGEST_PACKED, PACKS, PackedObject, Packs
from perago.transfer.cache_space import (
    BLOCK,
    READ,
    CacheSpace,
    CacheStatus,
    created,
    mark_used,
    on_disk,
    unlinked,
)
from perago.transfer.inventory import DIGEST, Digest, RemoteObject
from perago.transfer.scan import write_all

_log = logging.getLogger(__name__)

_ENTRIES = "objects"
# How keys and files are written. A cache of another format is emptied: nothing in it is found.
_FORMAT_FILE, _FORMAT = "format", "2"
_COUNTS = ("cache_hits", "cache_hit_bytes", "cache_misses")
# After an error of the disk nothing is added for so long.
_REST_SECONDS = 60.0
_PIECE = 1 << 20
_FICLONE = 0x40049409


class ObjectCache:
    """A cache in a folder of its own. Thread-safe; a disk that fails never fails an attempt."""

    def __init__(
        self, folder: Path, limit: int | None = None, *, min_free: int = 0, server: str = ""
    ) -> None:
        """Describe a cache; ``prepare`` makes its folder.

        ``limit`` is in bytes, by default a share of the free disk; the cache shrinks when less
        than ``min_free`` bytes are free. ``server`` is the address of the LakeFS that entries and
        aliases belong to.
        """
        self.folder = folder
        self.space = CacheSpace(folder, limit, min_free)
        self._packs = Packs(folder, self.space)
        self._inheritance = Inheritance(folder, self.space)
        self._server = server.rstrip("/").lower()
        self._aliases = Aliases(folder, self._server)
        self._lock = threading.Lock()
        self._rests_until = 0.0
        self._can_clone = True
        self._counts = dict.fromkeys(_COUNTS, 0)

    def prepare(self) -> None:
        """Make the folder. Raises ``OSError`` unless it is this user's alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError("it is not a folder of this user")
        if found.st_mode & 0o077:
            raise PermissionError("other users have rights on it; run chmod 700")
        for name in (PACKS, _ENTRIES, ALIASES):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        self._empty_unless_of_this_format()

    def _empty_unless_of_this_format(self) -> None:
        file = self.folder / _FORMAT_FILE
        with suppress(FileNotFoundError, UnicodeDecodeError):
            if file.read_text(encoding="ascii") == _FORMAT:
                return
        # If another process holds the lock for too long, what is old is evicted in time.
        with suppress(TimeoutError):
            self.clear()
        file.touch(mode=0o600)
        file.write_text(_FORMAT, encoding="ascii")

    def find(self, repository: str, remote: RemoteObject) -> CacheEntry | None:
        """Open the entry with an object's content; None if there is none."""
        entry = None
        if DIGEST.fullmatch(remote.checksum):
            entry = self._find_entry(repository, remote.checksum, remote.size)
        if entry is None and (digest := self._aliases.find(repository, remote)):
            entry = self._find_entry(repository, digest, remote.size)
        return entry

    def end_batch(self) -> None:
        """Write what waits, and close what is open, at the end of a download or an upload.

        Entries that are being read stay open.
        """
        self._attempt(self._packs.flush)
        self._packs.end_batch()

    @contextmanager
    def inheriting(self, workspace: Path) -> Iterator[None]:
        """Take the large files of a workspace over at the end of the block.

        Those that were downloaded or uploaded within the block, and not changed since. From
        another file system, they are copied at once.
        """
        self._inheritance.begin(workspace)
        try:
            yield
        finally:
            promised = self._inheritance.end(workspace)
            self._attempt(lambda: self._inheritance.take(promised))

    def clear(self) -> CacheStatus:
        """Remove everything; return what was there. Raises ``OSError`` if others hold the lock."""
        removed = self.space.clear()
        self._packs.clear()
        return removed

    def count(self, remote: RemoteObject, *, hit: bool) -> None:
        """Count an object that was taken from the cache, or was not there."""
        with self._lock:
            self._counts["cache_hits"] += hit
            self._counts["cache_hit_bytes"] += remote.size if hit else 0
            self._counts["cache_misses"] += not hit

    def take_counts(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        with self._lock:
            taken, self._counts = self._counts, dict.fromkeys(_COUNTS, 0)
        return {**taken, "cache_evictions": self.space.take_evictions()}

    def add_read(
        self,
        repository: str,
        remote: RemoteObject,
        digest: str,
        content: memoryview | int,
        path: str = "",
    ) -> None:
        """Add an object that was read: its content, or the descriptor of a file that has it.

        ``path`` is that of its file in a workspace.
        """

        def add() -> None:
            self._add(repository, digest, remote.size, content, path)
            if digest != remote.checksum and remote.address and self.space.reserve(BLOCK):
                self._aliases.write(repository, remote, digest)

        self._attempt(add)

    def add_file(self, repository: str, source: Path, digest: str = "") -> None:
        """Add a file that was uploaded, under its digest; without one, that is computed here."""

        def add() -> None:
            descriptor = os.open(source, READ)
            try:
                size = os.fstat(descriptor).st_size
                if digest:
                    self._add(repository, digest, size, descriptor, str(source))
                else:
                    self._add_hashed(repository, descriptor, size, str(source))
            finally:
                os.close(descriptor)

        self._attempt(add)

    def add_written(self, repository: str, digest: str, content: memoryview, path: str) -> None:
        """Add what was uploaded, of which the content is in memory, and is that of a file."""
        self._attempt(lambda: self._add(repository, digest, len(content), content, path))

    def clone(self, source: int, target: int) -> bool:
        """Share the blocks of a file with another; return whether the file system can do that."""
        if not self._can_clone:
            return False
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError:
            self._can_clone = False
        return self._can_clone

    def _find_entry(self, repository: str, digest: str, size: int) -> CacheEntry | None:
        key = self._key(repository, digest)
        if size <= LARGEST_PACKED:
            return self._packs.find(key, digest, size)
        path = self._entry(key, size)
        try:
            descriptor = os.open(path, READ)
        except OSError:
            return None
        found = os.fstat(descriptor)
        if found.st_size != size or not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            unlinked(path)
            return None
        mark_used(descriptor, found)
        return CachedObject(self, path, descriptor, size, digest)

    def _key(self, repository: str, digest: str) -> str:
        """Return what a content of a repository is found by, beside its size."""
        return seal(f"{self._server}\0{repository}", digest)[:32]

    def _entry(self, key: str, size: int) -> str:
        return f"{self.folder}/{_ENTRIES}/{key[:2]}/{size}-{key}"

    def _add(
        self, repository: str, digest: str, size: int, content: memoryview | int, path: str
    ) -> None:
        key = self._key(repository, digest)
        if size <= LARGEST_PACKED:
            if isinstance(content, int):
                content = memoryview(os.pread(content, size, 0))
            self._packs.add(key, digest, content)
            return
        entry = self._entry(key, size)
        if not os.path.lexists(entry) and not self._inheritance.promise(path, entry):
            self._add_file(entry, size, content)

    def _add_file(self, path: str, size: int, content: memoryview | int) -> None:
        """Add a large entry.

        It has its full length at once, under another name, so that it is not taken while it is
        written, and a process that evicts meanwhile counts it.
        """
        fresh = f"{path}.{uuid.uuid4().hex}"
        with created(fresh) as descriptor:
            if descriptor is None:
                return
            os.ftruncate(descriptor, size)
            if self.space.reserve(on_disk(size)):
                self._fill(descriptor, size, content)
                with suppress(FileNotFoundError):  # it was evicted
                    os.rename(fresh, path)  # noqa: PTH104
            else:
                unlinked(fresh)

    def _fill(self, descriptor: int, size: int, content: memoryview | int) -> None:
        if isinstance(content, memoryview):
            write_all(descriptor, content)
        else:
            for piece in _pieces(content, size):
                write_all(descriptor, piece)

    def _add_hashed(self, repository: str, source: int, size: int, path: str) -> None:
        digest, content = Digest(size), None
        # If the file changes between two readings, its entry is found out when it is taken.
        for piece in _pieces(source, size):
            digest.update(piece)
            content = piece if len(piece) == size else source
        if content is not None:
            self._add(repository, digest.text(), size, content, path)

    def _attempt(self, add: Callable[[], None]) -> None:
        if time.monotonic() < self._rests_until:
            return
        try:
            if self._rests_until:
                # The folder itself may be what was missing.
                self.prepare()
                self._rests_until = 0.0
            add()
        except OSError as error:
            self._rest(error)

    def _rest(self, error: OSError) -> None:
        """Add nothing for a while: the disk is full or broken, or the folder is gone."""
        with self._lock:
            is_told = time.monotonic() < self._rests_until
            self._rests_until = time.monotonic() + _REST_SECONDS
        if is_told:  # by another thread
            return
        where, why = show_path(str(self.folder)), as_utf8(str(error))
        _log.warning("the object cache in %s is not used for now: %s", where, why)


@contextmanager
def cache_batch(cache: ObjectCache | None) -> Iterator[None]:
    """Let a cache, if there is one, close its files at the end of the block."""
    try:
        yield
    finally:
        if cache is not None:
            cache.end_batch()


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An open entry. To evict it meanwhile does not change what is read from it."""

    cache: ObjectCache
    path: str
    descriptor: int
    size: int
    digest: str

    def close(self) -> None:
        os.close(self.descriptor)

    def copy_to(self, target: int) -> bool:
        """Copy the content to an empty file.

        Returns False if the content does not have the entry's digest. Then the entry is removed,
        and the file is empty again. Raises ``OSError`` if the file cannot be written.
        """
        try:
            is_copied = self._copy(target)
        except _DamagedError:
            is_copied = False
        if not is_copied:
            # It was damaged; or the object's checksum is no digest, which no download has checked.
            _log.info("an entry of the object cache has another content: %s", show_path(self.path))
            unlinked(self.path)
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
        return is_copied

    def _copy(self, target: int) -> bool:
        digest = Digest(self.size)
        if self.cache.clone(self.descriptor, target):
            for piece in _readable(_pieces(target, self.size)):
                digest.update(piece)
        else:
            for piece in _readable(_pieces(self.descriptor, self.size)):
                digest.update(piece)
                write_all(target, piece)
        return digest.text() == self.digest


CacheEntry = CachedObject | PackedObject


class _DamagedError(Exception):
    """An entry cannot be read."""


def _readable(pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """Tell errors of reading an entry from those of writing the file in the workspace."""
    try:
        yield from pieces
    except OSError as error:
        raise _DamagedError from error


def _pieces(source: int, size: int) -> Iterator[memoryview]:
    """Read a file from its beginning, wherever its position is; what was added is not read."""
    start = 0
    while piece := os.pread(source, min(_PIECE, size - start), start):
        start += len(piece)
        yield memoryview(piece)
