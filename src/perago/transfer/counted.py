"""A store that tells how many bytes have been read from it and written to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from perago.transfer.inventory import ObjectStore, RemoteObject, SmallWrite


class CountedStore:
    """Implements ``ObjectStore`` by another one; many threads may use it at once.

    A read is counted piece by piece, a write when the whole object is there.
    """

    def __init__(self, store: ObjectStore, tell: Callable[[int], None]) -> None:
        """``tell`` is given the sum of all bytes so far."""
        self._store = store
        self._tell = tell
        self._lock = threading.Lock()
        self._sum = 0

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        return self._store.list(repository, ref, prefix)

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        return self._store.level(repository, ref, prefix)

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        for piece in self._store.read(repository, ref, key, size, start):
            self._count(len(piece))
            yield piece

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        for length in self._store.save(repository, ref, key, size, descriptor):
            self._count(length)
            yield length

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
        digest = self._store.write(
            repository, branch, key, source, content_type=content_type, metadata=metadata
        )
        self._count(source.stat().st_size)
        return digest

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        for remote, content in self._store.read_many(repository, ref, objects, at_once):
            self._count(len(content))
            yield remote, content

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        for write, digest in self._store.write_many(repository, branch, writes, at_once):
            self._count(len(write.content))
            yield write, digest

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        self._store.delete(repository, branch, keys)

    def _count(self, size: int) -> None:
        with self._lock:
            self._sum += size
            total = self._sum
        self._tell(total)
