"""The objects of an in-memory lake, as the transfer's ``ObjectStore`` port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from perago.errors import BackendRefusedError, NotFoundError
from perago.names import DELETES_PER_REQUEST
from perago.protocol.ports import Change
from perago.protocol.workspace import StagingBranch
from perago.testing.faults import Faults
from perago.testing.repository import Repository, StoredObject, Tree
from perago.transfer.inventory import Digest, RemoteObject, SmallWrite


class InMemoryObjects:
    """Implements ``ObjectStore``, and the protocol's ``Objects``."""

    def __init__(
        self,
        repository: Callable[[str], Repository],
        faults: Faults,
        lock: AbstractContextManager[object],
    ) -> None:
        self._repository = repository
        self._faults = faults
        self._lock = lock

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        def do() -> list[RemoteObject]:
            with self._lock:
                visible = self._repository(repository).visible(ref)
            return [
                _listed(key, item)
                for key, item in sorted(visible.items(), key=lambda pair: pair[0].encode())
                if key.startswith(prefix)
            ]

        yield from self._faults.run("objects.list", do)

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        deeper: str | None = None
        for item in self.list(repository, ref, prefix):
            name, slash, _ = item.key[len(prefix) :].partition("/")
            if not slash:
                yield item
            elif prefix + name != deeper:
                deeper = prefix + name
                yield deeper + slash

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        def do() -> list[Change]:
            with self._lock:
                repo = self._repository(staging.repository)
                head = repo.branch(staging.branch).head
                return _diff(repo.tree(head), repo.visible(staging.branch))

        yield from self._faults.run("objects.uncommitted", do)

    def changes(
        self, repository: str, base: str, commit: str, prefix: str = ""
    ) -> Iterator[Change]:
        def do() -> list[Change]:
            with self._lock:
                repo = self._repository(repository)
                found = _diff(repo.tree(repo.resolve(base)), repo.tree(repo.resolve(commit)))
            return [change for change in found if change.key.startswith(prefix)]

        yield from self._faults.run("objects.changes", do)

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        def do() -> bytes:
            with self._lock:
                visible = self._repository(repository).visible(ref)
            if key not in visible:
                raise NotFoundError(f"object {key!r} not found")
            return visible[key].content

        yield memoryview(self._faults.run("objects.read", do))[start:]

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Leave all of it out: in memory one call is as fast as another."""
        return iter(())

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
        item = StoredObject(source.read_bytes(), content_type, tuple(sorted(metadata.items())))
        self.put(repository, branch, key, item)
        return ""

    def put(self, repository: str, branch: str, key: str, item: StoredObject) -> None:
        """Write an object without a file; for faults this is the call ``objects.write``."""

        def do() -> None:
            with self._lock:
                repo = self._repository(repository)
                target = repo.branch(branch)
                repo.refuse_protected(branch)
                target.uncommitted[key] = item

        self._faults.run("objects.write", do)

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Leave all of them out: in memory one call is as fast as another."""
        return iter(())

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        """Leave all of them out."""
        return iter(())

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        def do() -> None:
            if len(keys) > DELETES_PER_REQUEST:
                raise BackendRefusedError(f"{len(keys)} keys: at most {DELETES_PER_REQUEST} a call")
            with self._lock:
                repo = self._repository(repository)
                if branch not in repo.branches:
                    return  # LakeFS answers 200: a missing branch has nothing to delete
                repo.refuse_protected(branch)
                for key in keys:
                    repo.branches[branch].uncommitted[key] = None

        self._faults.run("objects.delete", do)


def _listed(key: str, item: StoredObject) -> RemoteObject:
    checksum = Digest(len(item.content))
    checksum.update(memoryview(item.content))
    metadata = dict(item.metadata)
    return RemoteObject(key, len(item.content), item.content_type, metadata, checksum.text())


def _diff(before: Tree, after: Tree) -> list[Change]:
    found: list[Change] = []
    for key in sorted({*before, *after}, key=str.encode):
        old, new = before.get(key), after.get(key)
        if new is None:
            found.append(Change(key, "removed"))
        elif old != new:
            kind: Literal["added", "changed"] = "added" if old is None else "changed"
            found.append(Change(key, kind, len(new.content)))
    return found
