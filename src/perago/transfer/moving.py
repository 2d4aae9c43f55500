"""Move the objects of one partition: download, hash, delete, upload.

The in-process engine calls each function once, with everything; on Spark each task calls it with
its own partition. The functions take and return plain values, so that both behave the same.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perago.errors import BackendUnavailableError
from perago.names import split_deletes
from perago.text import quote_path
from perago.transfer.cache import CacheEntry, ObjectCache
from perago.transfer.inventory import DIGEST, PIECE, Digest, ObjectStore, RemoteObject
from perago.transfer.plan import Upload
from perago.transfer.scan import (
    FetchedFile,
    StatRecord,
    changed_meanwhile,
    hash_file,
    reading,
    write_all,
)

_HASHING_THREADS = 4
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Memory for one object while it moves: a few pieces of a large one, read ahead and being hashed.
_MAX_PER_OBJECT = 48 << 20
# So many objects are read twice before a store's checksums are taken for tokens.
_ENOUGH_TOKENS = 3
# Memory for all objects that move. A client that joins pieces needs at most as much again.
_MAX_IN_MEMORY = 96 << 20


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where a download goes: into ``data``, or into ``landing`` first and then into ``data``.

    Tasks of a Spark job use a landing folder, which the engine removes after the download: an
    abandoned task that still runs cannot add a file to the folder that the body works in by then.
    """

    data: Path
    landing: Path | None = None

    @classmethod
    def beside(cls, data: Path) -> DownloadTarget:
        """Return the target with a landing folder beside ``data``, on the same file system."""
        return cls(data, landing_folder(data))


def landing_folder(data: Path) -> Path:
    return data.with_name(f"{data.name}.landing")


def download_partition(
    store: ObjectStore,
    repository: str,
    ref: str,
    objects: Iterable[tuple[str, RemoteObject]],
    target: DownloadTarget,
    threads: int,
    cache: ObjectCache | None = None,
) -> dict[str, FetchedFile]:
    """Write objects, each given with its path, below the data folder.

    Returns the record and digest of each file by path. Raises ``BackendUnavailableError`` for an
    object that is not as long as the listing says, or does not have the checksum.
    """
    # Large objects first: one that started last would be waited for alone. The others in the order
    # of their keys, in which a store can prepare for what comes next.
    order = sorted(objects, key=lambda item: (-max(item[1].size, PIECE), item[1].key))
    download = _Download(store, repository, ref, target, cache)
    with _batch(cache):
        # One thread takes small objects from the cache: more would only wait for the interpreter.
        left = [item for item in order if item[1].size > PIECE or not download.take_cached(*item)]
        run_over(left, download.fetch, min(threads, len(left)), on_error=download.memory.close)
    return download.fetched


@contextmanager
def _batch(cache: ObjectCache | None) -> Iterator[None]:
    """Let the cache close its files at the end of the block."""
    try:
        yield
    finally:
        if cache is not None:
            cache.end_batch()


class _Download:
    """The download of one partition."""

    def __init__(
        self,
        store: ObjectStore,
        repository: str,
        ref: str,
        target: DownloadTarget,
        cache: ObjectCache | None,
    ) -> None:
        self.fetched: dict[str, FetchedFile] = {}
        self.memory = ByteBudget(_MAX_IN_MEMORY)
        self._store = store
        self._repository = repository
        self._ref = ref
        self._target = target
        self._cache = cache
        self._made = {str(target.data)}
        # How many checksums look like MD5s and are none.
        self._tokens = 0

    def take_cached(self, path: str, remote: RemoteObject) -> bool:
        """Copy one object from the cache; return whether it was there."""
        if self._cache is None or remote.size == 0:
            return False
        found = self._cache.find(self._repository, remote)
        is_taken = found is not None and self._copy(found, path)
        self._cache.count(remote, hit=is_taken)
        return is_taken

    def _copy(self, found: CacheEntry, path: str) -> bool:
        with closing(found), self._new_file(path) as file:
            if not found.copy_to(file.descriptor):
                os.unlink(file.path)  # noqa: PTH108
                return False
            self.fetched[path] = file.put_in_place(found.digest)
        return True

    def fetch(self, item: tuple[str, RemoteObject]) -> None:
        """Download one object; a large one is looked up in the cache first."""
        path, remote = item
        if remote.size > PIECE and self.take_cached(path, remote):
            return
        with self.memory.take(min(remote.size, _MAX_PER_OBJECT)), self._new_file(path) as file:
            if remote.size > PIECE:
                with ThreadPoolExecutor(2, "perago-hash") as pool:
                    content, digest = self._write(remote, file, Digest(remote.size, pool))
            else:
                content, digest = self._write(remote, file, Digest(remote.size))
            digest = self._verified(remote, digest)
            self.fetched[path] = file.put_in_place(digest)
            if self._cache is not None and remote.size > 0:
                self._cache.add_read(self._repository, remote, digest, content, file.destination)

    def _write(
        self, remote: RemoteObject, file: _NewFile, digest: Digest
    ) -> tuple[memoryview | int, str]:
        """Write the content; return it, or the file's descriptor if it is large, and its digest."""
        size, piece = 0, memoryview(b"")
        for piece in self._read(remote):
            digest.update(piece)
            size += write_all(file.descriptor, piece)
        if size != remote.size:
            raise BackendUnavailableError(
                f"object {quote_path(remote.key)} has {size} bytes instead of {remote.size}"
            )
        return piece if len(piece) == size else file.descriptor, digest.text()

    def _read(self, remote: RemoteObject) -> Iterator[memoryview]:
        pieces = self._store.read(self._repository, self._ref, remote.key, remote.size)
        return self.memory.guarded(pieces)

    def _verified(self, remote: RemoteObject, digest: str) -> str:
        """Compare the content with the checksum, where that is an MD5; return the digest.

        That of a large object depends on how it was uploaded, and some object stores make tokens
        of the same form. Content that arrives twice alike is what the store has.
        """
        if digest == remote.checksum:
            return remote.checksum  # one text in memory instead of two
        is_md5 = remote.size <= PIECE and DIGEST.fullmatch(remote.checksum) is not None
        if not is_md5 or self._tokens >= _ENOUGH_TOKENS:
            return digest
        again = Digest(remote.size)
        for piece in self._read(remote):
            again.update(piece)
        if again.text() != digest:
            raise BackendUnavailableError(
                f"object {quote_path(remote.key)} did not arrive as it is stored: "
                f"its MD5 is not {remote.checksum}"
            )
        self._tokens += 1
        return digest

    @contextmanager
    def _new_file(self, path: str) -> Iterator[_NewFile]:
        """Create a file within the block."""
        destination = f"{self._target.data}/{path}"
        folder = destination.rpartition("/")[0]
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            self._made.add(folder)
        # A unique name: a task that Spark retries never finds the file of the first try.
        landing = self._target.landing
        fresh = destination if landing is None else f"{landing}/{uuid.uuid4().hex}"
        descriptor = os.open(fresh, _CREATE, 0o666)
        try:
            yield _NewFile(descriptor, fresh, destination)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _NewFile:
    """An open file that is being written."""

    descriptor: int
    path: str
    destination: str

    def put_in_place(self, digest: str) -> FetchedFile:
        """Give the file its name, if it has another, and return what it is then."""
        if self.path != self.destination:
            os.rename(self.path, self.destination)  # noqa: PTH104
        # After the rename, which changes the record.
        return FetchedFile(StatRecord.of(os.fstat(self.descriptor)), digest)


def hash_partition(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the digests of local files, by path."""
    digests: dict[str, str] = {}

    def one(path: str) -> None:
        with reading(path):
            digests[path] = hash_file(folder / path)

    run_over(paths, one, min(_HASHING_THREADS, len(paths)))
    return digests


def delete_partition(
    store: ObjectStore, repository: str, branch: str, keys: Sequence[str], threads: int
) -> None:
    """Delete objects, in as few requests as the store takes."""
    batches = list(split_deletes(keys))
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
    cache: ObjectCache | None = None,
) -> None:
    """Write files to a branch. Raises ``ProjectionError`` if one changed since the scan."""
    memory = ByteBudget(_MAX_IN_MEMORY)
    digests: dict[str, str] = {}

    def send(upload: Upload) -> None:
        with memory.take(min(upload.size, _MAX_PER_OBJECT)):
            path = folder / upload.path
            digests[upload.path] = _upload_one(store, repository, branch, upload, path)

    order = sorted(uploads, key=lambda upload: -upload.size)
    run_over(order, send, min(threads, len(order)), on_error=memory.close)
    if cache is not None:
        # By one thread, and not by those above: each call of the system that one of many threads
        # makes has it wait for the interpreter, which took six times as long as the work itself.
        with _batch(cache):
            for path, digest in digests.items():
                cache.add_file(repository, folder / path, digest)


def _upload_one(
    store: ObjectStore, repository: str, branch: str, upload: Upload, source: Path
) -> str:
    with reading(upload.path):
        _assert_as_scanned(source, upload)
        digest = store.write(
            repository,
            branch,
            upload.key,
            source,
            content_type=upload.content_type,
            metadata=upload.metadata,
        )
        _assert_as_scanned(source, upload)
    return digest


def _assert_as_scanned(source: Path, upload: Upload) -> None:
    """Refuse a file that a process of the body still writes: it could be published half-written."""
    if StatRecord.of(source.lstat()) != upload.record:
        raise changed_meanwhile(upload.path)


def run_over(
    items: Iterable[Item],
    work: Callable[[Item], None],
    threads: int,
    on_error: Callable[[], None] = lambda: None,
) -> None:
    """Call ``work`` for each item, in threads. The first error stops the rest and is raised.

    ``on_error`` is called after each error, to end what other threads do or wait for.

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
                on_error()

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
        on_error()
        for puller in started:
            puller.join()
        raise
    if errors:
        raise errors[0]


class _StoppedError(Exception):
    """Another transfer failed; its error is the one that is raised."""


class ByteBudget:
    """Limits the memory of concurrent transfers: each waits until its share is free.

    No wait is endless: every holder is in a request, every request has a time limit, and the
    first that fails closes the budget, which ends all waits.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._freed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        """End the waits of other threads, and what they read."""
        with self._freed:
            self._closed = True
            self._freed.notify_all()

    def guarded(self, pieces: Iterable[Item]) -> Iterator[Item]:
        """Yield pieces until the budget is closed: a large object is not read to its end then."""
        for piece in pieces:
            if self._closed:
                raise _StoppedError
            yield piece

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Hold ``amount`` of the budget within the block, or all of it if that is less."""
        amount = min(amount, self._limit)
        with self._freed:
            self._freed.wait_for(lambda: self._closed or self._taken + amount <= self._limit)
            if self._closed:
                raise _StoppedError
            self._taken += amount
        try:
            yield
        finally:
            with self._freed:
                self._taken -= amount
                self._freed.notify_all()
