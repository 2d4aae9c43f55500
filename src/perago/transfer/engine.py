"""The in-process engine: moves objects in parallel, streaming, with bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import BackendUnavailableError, ProjectionError
from perago.transfer.inventory import ObjectStore, Projection, RemoteObject
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.pool import ByteBudget, run_over
from perago.transfer.scan import FetchedFile, StatRecord, hash_file, shown

_DELETES_PER_CALL = 1000
_HASHING_THREADS = 4
# What one object may have in memory while it moves: a store's few pieces of a large one.
_MOST_PER_OBJECT = 32 << 20
# For all of them. What a client needs to join pieces comes on top, as much again at most.
_MOST_IN_MEMORY = 96 << 20


@dataclass(frozen=True, slots=True)
class Engine:
    """Downloads, hashes, deletes and uploads with a number of threads."""

    store: ObjectStore
    threads: int = 32

    def download(
        self, repository: str, ref: str, projection: Projection, folder: Path
    ) -> dict[str, FetchedFile]:
        """Write every file of a projection below ``folder``."""
        for path in sorted(_folders_of(projection)):
            (folder / path).mkdir()
        fetched: dict[str, FetchedFile] = {}
        memory = ByteBudget(_MOST_IN_MEMORY)

        def fetch(item: tuple[str, RemoteObject]) -> None:
            path, remote = item
            with memory.take(min(remote.size, _MOST_PER_OBJECT)):
                fetched[path] = self._download_one(repository, ref, remote, folder / path)

        # Large objects first: one that starts last would be waited for alone.
        order = sorted(projection.files.items(), key=lambda item: -item[1].size)
        run_over(order, fetch, self._threads_for(len(order)))
        return fetched

    def _download_one(
        self, repository: str, ref: str, remote: RemoteObject, target: Path
    ) -> FetchedFile:
        digest = hashlib.md5(usedforsecurity=False)
        size = 0
        # Exclusive: nothing that is already there is ever written through.
        with target.open("xb", buffering=0) as file:
            for piece in self.store.read(repository, ref, remote.key, remote.size):
                digest.update(piece)
                size += _write_all(file.fileno(), piece)
            record = StatRecord.of(os.fstat(file.fileno()))
        if size != remote.size:
            raise BackendUnavailableError(
                f"object {remote.key!r} came with {size} bytes instead of {remote.size}"
            )
        return FetchedFile(record, digest.hexdigest())

    def hash(self, folder: Path, paths: list[str]) -> dict[str, str]:
        """The MD5 of local files."""
        hashes: dict[str, str] = {}

        def one(path: str) -> None:
            hashes[path] = hash_file(folder / path)

        run_over(paths, one, min(_HASHING_THREADS, len(paths)))
        return hashes

    def stage(self, repository: str, branch: str, plan: SyncPlan, folder: Path) -> None:
        """Carry out a plan on a branch: deletes first, so that ``a`` can become ``a/b``."""
        batches = list(_batches(plan.deletes, _DELETES_PER_CALL))
        run_over(
            batches,
            lambda keys: self.store.delete(repository, branch, keys),
            self._threads_for(len(batches)),
        )
        memory = ByteBudget(_MOST_IN_MEMORY)

        def send(upload: Upload) -> None:
            with memory.take(min(upload.size, _MOST_PER_OBJECT)):
                self._upload_one(repository, branch, upload, folder / upload.path)

        order = sorted(plan.uploads, key=lambda upload: -upload.size)
        run_over(order, send, self._threads_for(len(order)))

    def _upload_one(self, repository: str, branch: str, upload: Upload, source: Path) -> None:
        _assert_as_scanned(source, upload)
        self.store.write(
            repository,
            branch,
            upload.key,
            source,
            content_type=upload.content_type,
            metadata=upload.metadata,
        )
        _assert_as_scanned(source, upload)

    def _threads_for(self, count: int) -> int:
        return min(self.threads, count)


def _assert_as_scanned(source: Path, upload: Upload) -> None:
    """A process that the body left behind may still write: never publish such a mixture."""
    try:
        now = StatRecord.of(source.lstat())
    except FileNotFoundError:
        now = None
    if now != upload.record:
        raise ProjectionError(
            f"a file changed while it was being published: {shown(upload.path)}",
            hint="The body must wait for every process and thread it starts.",
        )


def _write_all(descriptor: int, piece: memoryview) -> int:
    """Write a piece; an unbuffered write may take less than it was given."""
    written = os.write(descriptor, piece)
    while written < len(piece):
        written += os.write(descriptor, piece[written:])
    return written


def _folders_of(projection: Projection) -> set[str]:
    """Every folder, those above others included, so that each is made once, parents first."""
    folders: set[str] = set()
    for path in (*projection.files, *(f"{marker}/" for marker in projection.markers)):
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders.add(path)
    return folders


def _batches(keys: tuple[str, ...], size: int) -> Iterator[tuple[str, ...]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))
