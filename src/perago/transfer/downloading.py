"""Download the objects of one partition.

The in-process engine calls the function once, with everything; on Spark each task calls it with its
own partition. It takes and returns plain values, so that both behave the same.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perago.errors import BackendUnavailableError
from perago.text import quote_path
from perago.transfer.cache import CacheEntry, ObjectCache, cache_batch
from perago.transfer.inventory import (
    DIGEST,
    LARGEST_IN_BATCH,
    PIECE,
    Digest,
    ObjectStore,
    RemoteObject,
    digest_of,
)
from perago.transfer.scan import (
    COARSE_TICK_NS,
    FetchedFile,
    StatRecord,
    write_all,
)
from perago.transfer.threads import ByteBudget, run_over

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Larger objects are not hashed while they are downloaded: hashing takes longer than the download.
LARGEST_HASHED = 64 << 20
# So many objects are read twice before a store's checksums are taken for tokens.
_ENOUGH_TOKENS = 3
# By so much the file system's clock may be behind that of this process: a tick of the kernel.
_LATE_CLOCK_NS = 10_000_000


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
    with cache_batch(cache):
        # One thread takes small objects from the cache: more would only wait for the interpreter.
        left = [item for item in order if item[1].size > PIECE or not download.take_cached(*item)]
        left = download.fetch_small(left, threads)
        run_over(left, download.fetch, min(threads, len(left)), on_error=download.memory.close)
    download.let_files_age()
    return download.fetched


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
        self.memory = ByteBudget()
        self._store = store
        self._repository = repository
        self._ref = ref
        self._target = target
        self._cache = cache
        self._made = {str(target.data)}
        # How many checksums look like MD5s and are none.
        self._tokens = 0
        # The paths of objects of which the cache had another content under the checksum.
        self._refuted: set[str] = set()

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
                self._refuted.add(path)
                return False
            self.fetched[path] = FetchedFile(file.put_in_place(), found.digest)
        return True

    def fetch_small(
        self, items: list[tuple[str, RemoteObject]], at_once: int
    ) -> list[tuple[str, RemoteObject]]:
        """Download small objects, many at once; return the items that are left.

        Those too of which anything is not as it should be: ``fetch`` finds out what it is.
        """
        paths = {remote.key: path for path, remote in items if _is_small(remote)}
        small = (remote for _, remote in items if remote.key in paths)
        contents = self._store.read_many(self._repository, self._ref, small, at_once)
        for remote, content in contents:
            if digest_of(content) == remote.checksum:
                self._put_in_place(paths[remote.key], remote, content)
        return [item for item in items if item[0] not in self.fetched]

    def _put_in_place(self, path: str, remote: RemoteObject, content: memoryview) -> None:
        with self._new_file(path) as file:
            write_all(file.descriptor, content)
            self.fetched[path] = FetchedFile(file.put_in_place(), remote.checksum)
        if self._cache is not None:
            self._cache.add_read(
                self._repository, remote, remote.checksum, content, file.destination
            )

    def fetch(self, item: tuple[str, RemoteObject]) -> None:
        """Download one object; a large one is looked up in the cache first."""
        path, remote = item
        if remote.size > PIECE and self.take_cached(path, remote):
            return
        with self.memory.take(remote.size), self._new_file(path) as file:
            is_hashed = self._is_hashed(path, remote)
            if is_hashed:
                with _hashing(remote.size) as hashed:
                    content = self._write(remote, file, hashed)
                    digest = self._verified(remote, hashed.text())
            else:
                content, digest = self._write(remote, file), remote.checksum
            self.fetched[path] = FetchedFile(file.put_in_place(), digest, is_hashed)
            if self._cache is not None and remote.size > 0:
                self._cache.add_read(self._repository, remote, digest, content, file.destination)

    def _is_hashed(self, path: str, remote: RemoteObject) -> bool:
        """Return whether an object is hashed; otherwise its checksum is taken for its digest.

        If it is none, the file may be compared with the object once more, and the cache finds out
        when it is to give the content away.
        """
        return (
            remote.size <= LARGEST_HASHED
            or DIGEST.fullmatch(remote.checksum) is None
            or path in self._refuted
        )

    def let_files_age(self) -> None:
        """Wait until the body cannot change a file that was not hashed without its record.

        It takes a tick of the file system's clock, and the file would have to be read again. On a
        clock that is elsewhere the wait may be too short, and only costs that.
        """
        young = [file.record.aged_ns() for file in self.fetched.values() if not file.is_hashed]
        if young:
            wait_ns = max(young) + _LATE_CLOCK_NS - time.time_ns()
            time.sleep(min(max(wait_ns, 0), COARSE_TICK_NS) / 1e9)

    def _write(
        self, remote: RemoteObject, file: _NewFile, digest: Digest | None = None
    ) -> memoryview | int:
        """Write and hash the content; return it, or the file's descriptor if it is large."""
        size = self._save(remote, file) if digest is None else 0
        piece = memoryview(b"")
        for piece in self._read(remote, size):
            if digest is not None:
                digest.update(piece)
            size += write_all(file.descriptor, piece)
        if size != remote.size:
            raise BackendUnavailableError(
                f"object {quote_path(remote.key)} has {size} bytes instead of {remote.size}"
            )
        return piece if len(piece) == size else file.descriptor

    def _save(self, remote: RemoteObject, file: _NewFile) -> int:
        """Write the content in the fast way; return how much of it is there."""
        lengths = self._store.save(
            self._repository, self._ref, remote.key, remote.size, file.descriptor
        )
        size = sum(self.memory.guarded(lengths))
        os.lseek(file.descriptor, size, os.SEEK_SET)
        return size

    def _read(self, remote: RemoteObject, start: int = 0) -> Iterator[memoryview]:
        pieces = self._store.read(self._repository, self._ref, remote.key, remote.size, start)
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


def _is_small(remote: RemoteObject) -> bool:
    """Return whether an object is downloaded with others: its checksum tells if it arrived."""
    return 0 < remote.size <= LARGEST_IN_BATCH and bool(DIGEST.fullmatch(remote.checksum))


@contextmanager
def _hashing(size: int) -> Iterator[Digest]:
    """Provide the digest of an object; that of a large one is computed beside its download."""
    if size <= PIECE:
        yield Digest(size)
        return
    with ThreadPoolExecutor(2, "perago-hash") as pool:
        yield Digest(size, pool)


@dataclass(frozen=True, slots=True)
class _NewFile:
    """An open file that is being written."""

    descriptor: int
    path: str
    destination: str

    def put_in_place(self) -> StatRecord:
        """Give the file its name, if it has another, and return what it is then."""
        if self.path != self.destination:
            os.rename(self.path, self.destination)  # noqa: PTH104
        # After the rename, which changes the record.
        return StatRecord.of(os.fstat(self.descriptor))
