"""What is remote: objects as a store lists them, and the port to that store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perago.protocol.names import ACTIONS_FOLDER
from perago.transfer.subtrees import WHOLE, Subtree

DEFAULT_CONTENT_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """One object of a listing."""

    key: str
    size: int
    checksum: str
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)


class ObjectStore(Protocol):
    """The data plane of LakeFS. Reads, writes and deletes may be repeated by the adapter."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        """Every object whose key begins with ``prefix``, in key order."""
        ...

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        """The same up to the next slash: in the place of all that is deeper comes its prefix."""
        ...

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        """The bytes of one object, in bounded pieces."""
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
        """Delete objects; at most 1000 keys. A key that is not there is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Projection:
    """The objects below a prefix, by their relative path."""

    files: dict[str, RemoteObject]
    # Zero-byte objects whose key ends in a slash stand for folders (Hadoop and S3 tools).
    markers: dict[str, RemoteObject]


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a projection."""

    path: str
    item: RemoteObject
    is_marker: bool


ATTEMPT_MARKER = ".perago-attempt.json"


def is_action(key: str) -> bool:
    """Whether a key is one of LakeFS's action files, which no task may see or change."""
    return key.startswith(ACTIONS_FOLDER)


def project(objects: Iterable[RemoteObject], prefix: str) -> Projection:
    """Map a listing to relative paths. ``prefix`` is a folder without slashes at its ends."""
    files: dict[str, RemoteObject] = {}
    markers: dict[str, RemoteObject] = {}
    for entry in projected(objects, prefix):
        (markers if entry.is_marker else files)[entry.path] = entry.item
    return Projection(files, markers)


def projected(objects: Iterable[RemoteObject], prefix: str) -> Iterator[Entry]:
    """The same one by one, in the order of the listing."""
    start = listing_prefix(prefix)
    for item in objects:
        if not item.key.startswith(start) or is_action(item.key):
            continue
        path = item.key[len(start) :]
        # The first is the marker of the prefix itself: its folder is always there.
        if path in {"", ATTEMPT_MARKER}:
            continue
        if path.endswith("/") and item.size == 0:
            yield Entry(path[:-1], item, is_marker=True)
        else:
            yield Entry(path, item, is_marker=False)


def listing_prefix(prefix: str) -> str:
    """What to ask a listing for, so that ``audio`` does not bring ``audio-archive/``."""
    return f"{prefix}/" if prefix else ""


@dataclass(frozen=True, slots=True)
class Source:
    """A projection at a commit."""

    repository: str
    ref: str
    prefix: str

    def listing(self, store: ObjectStore, unit: Subtree = WHOLE) -> Iterator[RemoteObject]:
        """The objects of a unit, in key order."""
        prefix = listing_prefix(self.prefix) + unit.start
        if unit.is_deep:
            return store.list(self.repository, self.ref, prefix)
        level = store.level(self.repository, self.ref, prefix)
        return (item for item in level if isinstance(item, RemoteObject))

    def level(self, store: ObjectStore, start: str) -> Iterator[str]:
        """The paths directly in a folder, those of folders with a slash at the end."""
        whole = listing_prefix(self.prefix)
        for item in store.level(self.repository, self.ref, whole + start):
            if isinstance(item, str):
                if not is_action(item):
                    yield item.removeprefix(whole)
            # The folder's own marker is in it, and no folder in it.
            elif item.key != whole + start:
                yield from (entry.path for entry in projected([item], self.prefix))
