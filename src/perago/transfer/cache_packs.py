"""Packs: where the object cache keeps small contents, and the index that finds them.

To create a file can cost more than everything else that is done with a content of a few kilobytes.
So contents are appended to a pack, a file that one process fills during one download or upload.
The index is a hash table on disk: it says in which pack the content with a key is, and where.

Neither is trusted, because a content that is taken must have its digest. That is why nothing is
locked or synced: a record that is torn, outdated or overwritten by another process leads to a miss,
and so does a pack that was evicted.
"""

from __future__ import annotations

import logging
import os
import stat
import struct
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from perago.transfer.cache_space import BLOCK, READ, CacheSpace, create_file, mark_used, unlinked
from perago.transfer.inventory import Digest
from perago.transfer.scan import write_all

_log = logging.getLogger(__name__)

PACKS = "packs"
_INDEX = "index"
# Below this size, sharing the blocks of a file also costs more than writing them.
LARGEST_PACKED = 128 << 10
# Key, size, pack and offset of a content.
_RECORD = struct.Struct("<16sI8sI")
_KEY = struct.Struct("<16sI")
# A key has its records in one place, the newest first; the oldest one is pushed out.
_BUCKET = 8 * _RECORD.size
# One record for so many bytes of the limit, and at most 64 MiB of them.
_BYTES_PER_RECORD, _LEAST_INDEX, _LARGEST_INDEX = 4096, 64 << 10, 64 << 20
# So much is written at once: each call to the system makes a thread wait for the interpreter.
_AT_ONCE = 1 << 20
_MOST_OPEN = 64
_INDEX_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _OpenFile:
    """A file that is closed when no thread uses it any more."""

    def __init__(self, descriptor: int, name: str = "") -> None:
        self.descriptor = descriptor
        self.name = name
        # Where the next content of a pack goes.
        self.end = 0

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.descriptor)


class Packs:
    """The packs of one cache, and their index. Thread-safe."""

    def __init__(self, folder: Path, space: CacheSpace) -> None:
        self._folder = folder
        self._space = space
        self._lock = threading.Lock()
        self._index: _Index | None = None
        self._open: dict[str, _OpenFile] = {}
        self._filled: _OpenFile | None = None
        # Contents that are not written yet, by key, digest and size.
        self._waiting: dict[tuple[str, str, int], memoryview] = {}
        self._waiting_bytes = 0

    def find(self, key: str, digest: str, size: int) -> PackedObject | None:
        """Find a content; None if there is none, or nothing can be read.

        ``key`` has 32 hexadecimal digits, as ``digest``, which the content must have.
        """
        try:
            index = self._index or self._open_index()
            if (place := index.find(key, size)) is None:
                return None
            name, offset = place
            pack = self._open.get(name) or self._open_pack(name)
        except OSError:
            return None
        return PackedObject(pack, index, key, digest, size, offset)

    def add(self, key: str, digest: str, content: memoryview) -> None:
        """Add a content, if there is room, now or with others at once. Raises ``OSError``."""
        with self._lock:
            self._waiting[key, digest, len(content)] = content
            self._waiting_bytes += len(content)
            if self._waiting_bytes < min(_AT_ONCE, self._space.portion):
                return
        self.flush()

    def flush(self) -> None:
        """Write the contents that wait. Raises ``OSError``."""
        with self._lock:
            waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        new = {key: waiting[key] for key in waiting if self.find(*key) is None}
        size = sum(map(len, new.values()))
        if not new or not self._space.reserve(size):
            return
        index = self._index or self._open_index()
        with self._lock:
            if (pack := self._pack_for(size)) is None:
                return
            offset, pack.end = pack.end, pack.end + size
        try:
            write_at(pack.descriptor, memoryview(b"".join(new.values())), offset)
        except OSError:
            self._give_up(pack)
            raise
        for (key, _, length), content in new.items():
            index.put(key, length, pack.name, offset)
            offset += len(content)

    def end_batch(self) -> None:
        """Close everything: the room of a pack that was evicted is free once no process has it."""
        with self._lock:
            self._waiting, self._waiting_bytes = {}, 0
            self._index = self._filled = None
            self._open.clear()

    def clear(self) -> None:
        """Remove the index."""
        unlinked(f"{self._folder}/{_INDEX}")

    def _open_index(self) -> _Index:
        records = self._space.limit // _BYTES_PER_RECORD
        size = min(max(records * _RECORD.size, _LEAST_INDEX), _LARGEST_INDEX)
        self._index = index = _Index(f"{self._folder}/{_INDEX}", size)
        return index

    def _open_pack(self, name: str) -> _OpenFile:
        pack = _OpenFile(os.open(self._path(name), READ), name)
        found = os.fstat(pack.descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(name)
        mark_used(pack.descriptor, found)
        with self._lock:
            self._keep_open(pack)
        return pack

    def _pack_for(self, size: int) -> _OpenFile | None:
        """Return the pack that is being filled, or begin another one; None if there is no room."""
        pack = self._filled
        if pack is not None and pack.end + size <= self._space.portion:
            return pack
        if not self._space.reserve(BLOCK):  # its last block is not full
            return None
        name = uuid.uuid4().hex[:16]
        self._filled = pack = _OpenFile(create_file(self._path(name)), name)
        self._keep_open(pack)
        return pack

    def _keep_open(self, pack: _OpenFile) -> None:
        if len(self._open) >= _MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[pack.name] = pack

    def _give_up(self, pack: _OpenFile) -> None:
        """Remove a pack that cannot be written: the disk has more room without it."""
        unlinked(self._path(pack.name))
        with self._lock:
            self._open.pop(pack.name, None)
            if self._filled is pack:
                self._filled = None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{PACKS}/{name[:2]}/{name}"


@dataclass(frozen=True, slots=True)
class PackedObject:
    """A content in an open pack. To evict it meanwhile does not change what is read from it."""

    pack: _OpenFile = field(repr=False)
    index: _Index = field(repr=False)
    key: str
    digest: str
    size: int
    offset: int

    def close(self) -> None:
        """The pack stays open for the other contents in it, until the end of the batch."""

    def copy_to(self, target: int) -> bool:
        """Copy the content to an empty file.

        Returns False if it is not what the index says. Then it is forgotten, and the file is still
        empty. Raises ``OSError`` if the file cannot be written.
        """
        content = self._read()
        digest = Digest(self.size)
        digest.update(content)
        if len(content) != self.size or digest.text() != self.digest:
            self.index.forget(self.key, self.size)
            _log.warning("an entry of the object cache was damaged: in pack %s", self.pack.name)
            return False
        write_all(target, content)
        return True

    def _read(self) -> memoryview:
        try:
            return memoryview(os.pread(self.pack.descriptor, self.size, self.offset))
        except OSError:
            return memoryview(b"")


class _Index:
    """A hash table in a file: buckets of a few records each, of which the newest is the first."""

    def __init__(self, path: str, size: int) -> None:
        """Open the index, or make one of ``size`` bytes. Raises ``OSError``."""
        self._file = _OpenFile(os.open(path, _INDEX_FLAGS, 0o600))
        found = os.fstat(self._file.descriptor).st_size
        if found < _BUCKET:
            os.ftruncate(self._file.descriptor, size)
        # Where two processes make it at once with other sizes, some records are not found.
        self._buckets = (found if found >= _BUCKET else size) // _BUCKET

    def find(self, key: str, size: int) -> tuple[str, int] | None:
        """Return the pack and the offset of a content."""
        wanted, place = self._place(key, size)
        bucket = self._bucket(place)
        at = _position(bucket, wanted)
        if at is None:
            return None
        _, _, pack, offset = _RECORD.unpack_from(bucket, at)
        return pack.hex(), offset

    def put(self, key: str, size: int, pack: str, offset: int) -> None:
        """Add a record, in place of an older one of the same content."""
        wanted, place = self._place(key, size)
        record = _RECORD.pack(*_KEY.unpack(wanted), bytes.fromhex(pack), offset)
        self._write(wanted, place, record)

    def forget(self, key: str, size: int) -> None:
        """Remove a record."""
        with suppress(OSError):
            self._write(*self._place(key, size), b"")

    def _write(self, key: bytes, place: int, record: bytes) -> None:
        bucket = self._bucket(place)
        at = _position(bucket, key)
        if at is not None:
            bucket = bucket[:at] + bucket[at + _RECORD.size :]
        bucket = (record + bucket).ljust(_BUCKET, b"\0")
        os.pwrite(self._file.descriptor, bucket[:_BUCKET], place)

    def _bucket(self, place: int) -> bytes:
        # Zeros in place of what another program cut off.
        return os.pread(self._file.descriptor, _BUCKET, place).ljust(_BUCKET, b"\0")

    def _place(self, key: str, size: int) -> tuple[bytes, int]:
        """Return how a record of a content begins, and where its bucket is."""
        begin = _KEY.pack(bytes.fromhex(key), size)
        return begin, int.from_bytes(begin[:8], "little") % self._buckets * _BUCKET


def _position(bucket: bytes, key: bytes) -> int | None:
    at = bucket.find(key)
    # Bytes within a record cannot be a key, except of an index that is damaged.
    return at if at >= 0 and at % _RECORD.size == 0 else None


def write_at(descriptor: int, content: memoryview, offset: int) -> None:
    """Write a content at a place of a file; a write may write only part of it."""
    written = os.pwrite(descriptor, content, offset)
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], offset + written)
