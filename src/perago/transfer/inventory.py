"""The remote side: objects as a store lists them, projections of them, and the store's port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perago.protocol.names import ACTIONS_FOLDER
from perago.transfer.subtrees import WHOLE, Subtree

DEFAULT_CONTENT_TYPE = "application/octet-stream"
ATTEMPT_MARKER = ".perago-attempt.json"


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """One object of a listing."""

    key: str
    size: int
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)
    # The MD5 of the content, or a token for what was written in parts, which may look like one.
    checksum: str = field(default="", compare=False)


class ObjectStore(Protocol):
    """The data plane of LakeFS. Every call is idempotent, and adapters may retry it."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        """List every object whose key begins with ``prefix``, in key order."""
        ...

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        """List as ``list`` does, up to the next slash: deeper objects appear as their prefix."""
        ...

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        """Read the bytes of one object, in bounded pieces."""
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
    ) -> None:
        """Upload one file, in bounded pieces."""
        ...

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        """Delete objects, at most 1000. A key that does not exist is no error."""
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
        if not item.key.startswith(start) or is_action(item.key):
            continue
        path = item.key[len(start) :]
        # An empty path is the marker of the prefix itself, whose folder always exists.
        if path in {"", ATTEMPT_MARKER}:
            continue
        if path.endswith("/") and item.size == 0:
            yield ProjectionEntry(path[:-1], item, is_marker=True)
        else:
            yield ProjectionEntry(path, item, is_marker=False)


def listing_prefix(prefix: str) -> str:
    """Return the prefix of keys to list: with a slash, ``audio`` excludes ``audio-archive/``."""
    return f"{prefix}/" if prefix else ""


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
