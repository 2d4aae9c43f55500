"""Move the objects of one partition: download, hash, delete, upload.

The in-process engine calls each function once, with everything; on Spark each task calls it with
its own partition. The functions take and return plain values, so that both behave the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perago.errors import BackendUnavailableError, ProjectionError
from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.plan import Upload
from perago.transfer.scan import FetchedFile, StatRecord, hash_file, printable

_DELETES_PER_CALL = 1000
_HASHING_THREADS = 4
# Memory for one object while it moves: a few pieces of a large one.
_MAX_PER_OBJECT = 32 << 20
# Memory for all objects that move. A client that joins pieces needs at most as much again.
_MAX_IN_MEMORY = 96 << 20


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where a download goes: each file is written in ``landing`` and then renamed into ``data``.

    The engine removes the landing folder when the download is over. So an abandoned Spark task
    that still runs cannot add a file to the folder that the body works in by then.
    """

    data: Path
    landing: Path

    @classmethod
    def beside(cls, data: Path) -> DownloadTarget:
        """Return the target with a landing folder beside ``data``, on the same file system."""
        return cls(data, data.with_name(f"{data.name}.landing"))


def download_partition(
    store: ObjectStore,
    repository: str,
    ref: str,
    objects: Iterable[tuple[str, RemoteObject]],
    target: DownloadTarget,
    threads: int,
) -> dict[str, FetchedFile]:
    """Write objects, each given with its path, below the data folder.

    Returns the record and hash of each file by path. Raises ``BackendUnavailableError`` for an
    object that is not as long as the listing says.
    """
    fetched: dict[str, FetchedFile] = {}
    memory = ByteBudget(_MAX_IN_MEMORY)
    made: set[Path] = {target.data}

    def fetch(item: tuple[str, RemoteObject]) -> None:
        path, remote = item
        file = target.data / path
        if file.parent not in made:
            file.parent.mkdir(parents=True, exist_ok=True)
            made.add(file.parent)
        with memory.take(min(remote.size, _MAX_PER_OBJECT)):
            fetched[path] = _download_one(store, repository, ref, remote, file, target.landing)

    # Large objects first: one that started last would be waited for alone.
    order = sorted(objects, key=lambda item: -item[1].size)
    run_over(order, fetch, min(threads, len(order)))
    return fetched


def _download_one(
    store: ObjectStore,
    repository: str,
    ref: str,
    remote: RemoteObject,
    destination: Path,
    landing: Path,
) -> FetchedFile:
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    # A unique name: a task that Spark retries never finds the file of the first try.
    fresh = landing / uuid.uuid4().hex
    with fresh.open("xb", buffering=0) as file:
        for piece in store.read(repository, ref, remote.key, remote.size):
            digest.update(piece)
            size += _write_all(file.fileno(), piece)
        if size != remote.size:
            raise BackendUnavailableError(
                f"object {remote.key!r} has {size} bytes instead of {remote.size}"
            )
        fresh.rename(destination)
        # After the rename, which changes the record.
        record = StatRecord.of(os.fstat(file.fileno()))
    return FetchedFile(record, digest.hexdigest())


def hash_partition(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the MD5 of local files, by path."""
    hashes: dict[str, str] = {}

    def one(path: str) -> None:
        hashes[path] = hash_file(folder / path)

    run_over(paths, one, min(_HASHING_THREADS, len(paths)))
    return hashes


def delete_partition(
    store: ObjectStore, repository: str, branch: str, keys: Sequence[str], threads: int
) -> None:
    """Delete objects, in as few requests as the store takes."""
    batches = list(_batches(keys, _DELETES_PER_CALL))
    run_over(
        batches, lambda batch: store.delete(repository, branch, batch), min(threads, len(batches))
    )


def upload_partition(
    store: ObjectStore,
    repository: str,
    branch: str,
    uploads: Iterable[Upload],
    folder: Path,
    threads: int,
) -> None:
    """Write files to a branch. Raises ``ProjectionError`` if one changed since the scan."""
    memory = ByteBudget(_MAX_IN_MEMORY)

    def send(upload: Upload) -> None:
        with memory.take(min(upload.size, _MAX_PER_OBJECT)):
            _upload_one(store, repository, branch, upload, folder / upload.path)

    order = sorted(uploads, key=lambda upload: -upload.size)
    run_over(order, send, min(threads, len(order)))


def _upload_one(
    store: ObjectStore, repository: str, branch: str, upload: Upload, source: Path
) -> None:
    _assert_as_scanned(source, upload)
    store.write(
        repository,
        branch,
        upload.key,
        source,
        content_type=upload.content_type,
        metadata=upload.metadata,
    )
    _assert_as_scanned(source, upload)


def _assert_as_scanned(source: Path, upload: Upload) -> None:
    """Refuse a file that a process of the body still writes: it could be published half-written."""
    try:
        now = StatRecord.of(source.lstat())
    except FileNotFoundError:
        now = None
    if now != upload.record:
        raise ProjectionError(
            f"a file changed while it was being published: {printable(upload.path)}",
            hint="The body must wait for every process and thread it starts.",
        )


def _write_all(descriptor: int, piece: memoryview) -> int:
    """Write a piece and return its length; an unbuffered write may write only part of it."""
    written = os.write(descriptor, piece)
    while written < len(piece):
        written += os.write(descriptor, piece[written:])
    return written


def _batches(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


def run_over(items: Iterable[Item], work: Callable[[Item], None], threads: int) -> None:
    """Call ``work`` for each item, in threads. The first error stops the rest and is raised.

    The threads read the iterable themselves, so that a million items never become a million
    futures. All threads have ended on return, also when the calling thread is interrupted.
    """
    source = iter(items)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def pull() -> None:
        while not errors:
            try:
                with lock:
                    item = next(source)
            except StopIteration:
                return
            except BaseException as error:  # noqa: BLE001  raised by the caller's thread
                errors.append(error)
                return
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001  raised by the caller's thread
                errors.append(error)

    pullers = [threading.Thread(target=pull, name="perago-transfer") for _ in range(threads)]
    started: list[threading.Thread] = []
    try:
        for puller in pullers:
            puller.start()
            started.append(puller)
        for puller in started:
            puller.join()
    except BaseException as error:
        errors.append(error)
        for puller in started:
            puller.join()
        raise
    if errors:
        raise errors[0]


class ByteBudget:
    """Limits the memory of concurrent transfers: each waits until its share is free."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Hold ``amount`` of the budget within the block, or all of it if that is less."""
        amount = min(amount, self._limit)
        with self._freed:
            # Bounded: every holder is in a request, and every request has a timeout.
            self._freed.wait_for(lambda: self._taken + amount <= self._limit)
            self._taken += amount
        try:
            yield
        finally:
            with self._freed:
                self._taken -= amount
                self._freed.notify_all()
