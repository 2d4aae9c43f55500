"""The in-process engine: moves objects in parallel, streaming, with bounded memory."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import BackendUnavailableError
from perago.transfer.inventory import ObjectStore, Projection, RemoteObject
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.pool import run_over
from perago.transfer.scan import FetchedFile, StatRecord, hash_file

_DELETES_PER_CALL = 1000
# A large object is moved in several buffers at once; a few of them fill the line, and more would
# only cost memory.
_LARGE_BYTES = 16 << 20
_LARGE_AT_ONCE = 4
_HASHING_THREADS = 4


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
            (folder / path).mkdir(parents=True, exist_ok=True)
        fetched: dict[str, FetchedFile] = {}
        large = threading.Semaphore(_LARGE_AT_ONCE)

        def fetch(item: tuple[str, RemoteObject]) -> None:
            path, remote = item
            if remote.size >= _LARGE_BYTES:
                with large:
                    fetched[path] = self._download_one(repository, ref, remote, folder / path)
            else:
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
        # O_EXCL: nothing that is already there is ever written through.
        with target.open("xb") as file:
            for piece in self.store.read(repository, ref, remote.key, remote.size):
                digest.update(piece)
                size += file.write(piece)
            file.flush()
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

        run_over(paths, one, min(_HASHING_THREADS, max(len(paths), 1)))
        return hashes

    def stage(self, repository: str, branch: str, plan: SyncPlan, folder: Path) -> None:
        """Carry out a plan on a branch: deletes first, so that ``a`` can become ``a/b``."""
        run_over(
            _batches(plan.deletes, _DELETES_PER_CALL),
            lambda keys: self.store.delete(repository, branch, keys),
            self._threads_for(len(plan.deletes) // _DELETES_PER_CALL + 1),
        )
        large = threading.Semaphore(_LARGE_AT_ONCE)

        def write(upload: Upload) -> None:
            self.store.write(
                repository,
                branch,
                upload.key,
                folder / upload.path,
                content_type=upload.content_type,
                metadata=upload.metadata,
            )

        def send(upload: Upload) -> None:
            if upload.size >= _LARGE_BYTES:
                with large:
                    write(upload)
            else:
                write(upload)

        order = sorted(plan.uploads, key=lambda upload: -upload.size)
        run_over(order, send, self._threads_for(len(order)))

    def _threads_for(self, count: int) -> int:
        return max(1, min(self.threads, count))


def _folders_of(projection: Projection) -> set[str]:
    folders = set(projection.markers)
    folders.update(path.rpartition("/")[0] for path in projection.files if "/" in path)
    return folders


def _batches(keys: tuple[str, ...], size: int) -> Iterator[tuple[str, ...]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))
