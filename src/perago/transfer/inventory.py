"""The remote side: objects as a store lists them, projections of them, and the store's port."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from perago.names import ACTIONS_FOLDER, listing_prefix
from perago.transfer.subtrees import WHOLE, Subtree

DEFAULT_CONTENT_TYPE = "application/octet-stream"
ATTEMPT_MARKER = ".perago-attempt.json"
# Objects move in pieces of this size; a larger one is uploaded in parts.
PIECE = 8 << 20
# Objects up to this size move many at once.
LARGEST_IN_BATCH = 256 << 10
# The number of parts that S3 takes for one object.
_MAX_PARTS = 10_000
# The form of a digest.
DIGEST = re.compile(r"[0-9a-f]{32}")
# Pieces of an object that wait for their hash or are being hashed.
_HASHED_AT_ONCE = 2
_new_md5 = partial(hashlib.md5, usedforsecurity=False)


# One for all objects that have none; it is never changed.
NO_METADATA: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """One object of a listing."""

    key: str
    size: int
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)
    # What the store calls the checksum: a digest, or a token that says nothing about the content.
    checksum: str = ""
    # Where the store has the bytes, if the checksum may be a token; an upload is at a new place.
    address: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SmallWrite:
    """A small object to write, without user metadata."""

    key: str
    content: bytes
    content_type: str


class Digest:
    """Computes the checksum that LakeFS gives to content that is uploaded in our pieces.

    For one piece that is its MD5. For more it is, as in S3, the MD5 of the MD5s of the pieces:
    that is known of an object in parts, and its MD5 is not.
    """

    def __init__(self, size: int, pool: Executor | None = None) -> None:
        """Begin the digest of so many bytes; with a pool, whole pieces are hashed there."""
        self._piece = piece_size(size) if size > PIECE else None
        self._pool = pool
        self._current = _new_md5()
        self._room = self._piece or 0
        self._done: list[Callable[[], bytes]] = []

    def update(self, content: memoryview) -> None:
        """Add what follows."""
        if self._piece is None:
            self._current.update(content)
            return
        while len(content):
            part, content = content[: self._room], content[self._room :]
            if self._pool is not None and len(part) == self._piece:
                if len(self._done) >= _HASHED_AT_ONCE:
                    # A bound for the pieces that wait in memory.
                    self._done[-_HASHED_AT_ONCE]()
                self._done.append(self._pool.submit(_md5, part).result)
                continue
            self._current.update(part)
            self._room -= len(part)
            if not self._room:
                self._done.append(self._current.digest)
                self._current, self._room = _new_md5(), self._piece

    def text(self) -> str:
        """Return the digest of what was added."""
        if self._piece is None:
            return self._current.hexdigest()
        parts = [digest() for digest in self._done]
        if self._room < self._piece or not parts:
            parts.append(self._current.digest())
        return _new_md5(b"".join(parts)).hexdigest()


def digest_of(content: bytes | memoryview) -> str:
    """Return the digest of content that is one piece."""
    return _new_md5(content).hexdigest()


def _md5(content: memoryview) -> bytes:
    return _new_md5(content).digest()


def piece_size(size: int) -> int:
    """Return the size of the parts in which an object is written: they grow with the object.

    An object may have 10,000 parts, which is 78 GiB in parts of 8 MiB.
    """
    return PIECE * max(1, -(-size // (PIECE * _MAX_PARTS)))


class ObjectStore(Protocol):
    """The data plane of LakeFS. Every call is idempotent, and adapters may retry it."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        """List every object whose key begins with ``prefix``, in key order."""
        ...

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        """List as ``list`` does, up to the next slash: deeper objects appear as their prefix."""
        ...

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        """Read the bytes of one object, in bounded pieces; ``start`` is a multiple of ``PIECE``."""
        ...

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Write a large object to an open file; yield the lengths of its pieces, in order.

        It is the fast way: what it leaves out at the end is to be read by ``read``, which also
        tells why. It may raise what that would raise.
        """
        ...

    def write(
        self,
        repository: str,
        branch: str,
        key: str,
        source: Path,
        *,
        content_type: str,
        metadata: dict[str, str],
    ) -> str:
        """Upload one file, in bounded pieces; return its digest if that is known, or nothing."""
        ...

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Read objects of up to ``LARGEST_IN_BATCH`` bytes, in any order.

        It is the fast way, on which nothing is retried: what is left out is to be read by ``read``.
        """
        ...

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        """Write objects as ``read_many`` reads them; yield each with its digest."""
        ...

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        """Delete objects, at most ``DELETES_PER_REQUEST``. A key that is not there is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Projection:
    """The objects below a prefix, by their relative path."""

    files: dict[str, RemoteObject]
    # Zero-byte objects whose key ends in a slash are folder markers (Hadoop and S3 tools).
    markers: dict[str, RemoteObject]


@dataclass(frozen=True, slots=True)
class ProjectionEntry:
    """One object of a projection."""

    path: str
    item: RemoteObject
    is_marker: bool


def is_action(key: str) -> bool:
    """Return whether a key is a LakeFS action file, which no task may see or change."""
    return key.startswith(ACTIONS_FOLDER)


def project(objects: Iterable[RemoteObject], prefix: str) -> Projection:
    """Map a listing to relative paths. ``prefix`` is a folder without slashes at its ends."""
    files: dict[str, RemoteObject] = {}
    markers: dict[str, RemoteObject] = {}
    for entry in projected(objects, prefix):
        (markers if entry.is_marker else files)[entry.path] = entry.item
    return Projection(files, markers)


def projected(objects: Iterable[RemoteObject], prefix: str) -> Iterator[ProjectionEntry]:
    """Map a listing as ``project`` does, one entry at a time, in the order of the listing."""
    start = listing_prefix(prefix)
    for item in objects:
        if (path := _relative(item.key, start)) is None:
            continue
        if path.endswith("/") and item.size == 0:
            yield ProjectionEntry(path[:-1], item, is_marker=True)
        else:
            yield ProjectionEntry(path, item, is_marker=False)


def project_keys(keys: Iterable[str], prefix: str) -> Iterator[str]:
    """Map keys to the relative paths of files; what is no file of the projection is left out."""
    start = listing_prefix(prefix)
    paths = (_relative(key, start) for key in keys)
    return (path for path in paths if path is not None and not path.endswith("/"))


def _relative(key: str, start: str) -> str | None:
    if not key.startswith(start) or is_action(key):
        return None
    path = key[len(start) :]
    # An empty path is the marker of the prefix itself, whose folder always exists.
    return None if path in {"", ATTEMPT_MARKER} else path


@dataclass(frozen=True, slots=True)
class Source:
    """A projection at a commit."""

    repository: str
    ref: str
    prefix: str

    def listing(self, store: ObjectStore, subtree: Subtree = WHOLE) -> Iterator[RemoteObject]:
        """List the objects of a subtree, in key order."""
        prefix = listing_prefix(self.prefix) + subtree.start
        if subtree.is_deep:
            return store.list(self.repository, self.ref, prefix)
        level = store.level(self.repository, self.ref, prefix)
        return (item for item in level if isinstance(item, RemoteObject))

    def level(self, store: ObjectStore, start: str) -> Iterator[str]:
        """List the paths directly in a folder, those of folders with a slash at the end."""
        root = listing_prefix(self.prefix)
        for item in store.level(self.repository, self.ref, root + start):
            if isinstance(item, str):
                if not is_action(item):
                    yield item.removeprefix(root)
            # The folder's own marker is listed too, and is no entry of the folder.
            elif item.key != root + start:
                yield from (entry.path for entry in projected([item], self.prefix))
