"""What moves objects: one function per direction, over one partition of them.

The engine of this process calls each with everything it has; on Spark every task calls it with
its own partition. They take and give plain values, so that either way nothing is different.
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
from perago.transfer.scan import FetchedFile, StatRecord, hash_file, shown

_DELETES_PER_CALL = 1000
_HASHING_THREADS = 4
# What one object may have in memory while it moves: a store's few pieces of a large one.
_MOST_PER_OBJECT = 32 << 20
# For all of them. What a client needs to join pieces comes on top, as much again at most.
_MOST_IN_MEMORY = 96 << 20


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where a download goes: each file is written in ``landing`` and then put in place whole.

    Whoever started the download removes the landing folder when it is over. A Spark task that
    was given up and still runs can therefore not put a file where the body works by then.
    """

    data: Path
    landing: Path

    @classmethod
    def beside(cls, data: Path) -> DownloadTarget:
        """With a landing folder on the same file system, outside of the data folder."""
        return cls(data, data.with_name(f"{data.name}.landing"))


def download_partition(
    store: ObjectStore,
    repository: str,
    ref: str,
    objects: Iterable[tuple[str, RemoteObject]],
    place: DownloadTarget,
    threads: int,
) -> dict[str, FetchedFile]:
    """Write objects, each given with its path, below the data folder."""
    fetched: dict[str, FetchedFile] = {}
    memory = ByteBudget(_MOST_IN_MEMORY)
    made: set[Path] = {place.data}

    def fetch(item: tuple[str, RemoteObject]) -> None:
        path, remote = item
        target = place.data / path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        with memory.take(min(remote.size, _MOST_PER_OBJECT)):
            fetched[path] = _download_one(store, repository, ref, remote, target, place.landing)

    # Large objects first: one that starts last would be waited for alone.
    order = sorted(objects, key=lambda item: -item[1].size)
    run_over(order, fetch, min(threads, len(order)))
    return fetched


def _download_one(
    store: ObjectStore,
    repository: str,
    ref: str,
    remote: RemoteObject,
    target: Path,
    landing: Path,
) -> FetchedFile:
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    # A name of its own: a task that Spark repeats never meets what the first one left.
    fresh = landing / uuid.uuid4().hex
    with fresh.open("xb", buffering=0) as file:
        for piece in store.read(repository, ref, remote.key, remote.size):
            digest.update(piece)
            size += _write_all(file.fileno(), piece)
        if size != remote.size:
            raise BackendUnavailableError(
                f"object {remote.key!r} came with {size} bytes instead of {remote.size}"
            )
        fresh.rename(target)
        # Only now: to rename changes the record.
        record = StatRecord.of(os.fstat(file.fileno()))
    return FetchedFile(record, digest.hexdigest())


def hash_partition(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    """The MD5 of local files."""
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
    """Write files to a branch; none that changed since it was scanned."""
    memory = ByteBudget(_MOST_IN_MEMORY)

    def send(upload: Upload) -> None:
        with memory.take(min(upload.size, _MOST_PER_OBJECT)):
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


def _batches(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


def run_over(items: Iterable[Item], work: Callable[[Item], None], threads: int) -> None:
    """Call ``work`` for each item. The first error stops the rest and is raised.

    Threads pull from the iterable themselves, so that a million items never become a million
    futures. No thread is left behind, also when the calling one is interrupted.
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
    """Lets transfers wait until what they hold in memory fits under a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Hold ``amount`` of the budget; more than all of it counts as all of it."""
        amount = min(amount, self._limit)
        with self._freed:
            # Bounded: whoever holds a part is in a request, and every request has a timeout.
            self._freed.wait_for(lambda: self._taken + amount <= self._limit)
            self._taken += amount
        try:
            yield
        finally:
            with self._freed:
                self._taken -= amount
                self._freed.notify_all()
