"""Stage one partition: delete and upload objects.

As with downloads (:mod:`perago.transfer.downloading`), the in-process engine calls the functions
once, with everything, and each task on Spark with its own partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perago.names import split_deletes
from perago.transfer.cache import ObjectCache, cache_batch
from perago.transfer.inventory import LARGEST_IN_BATCH, ObjectStore, SmallWrite
from perago.transfer.plan import Upload
from perago.transfer.scan import StatRecord, changed_meanwhile, reading
from perago.transfer.threads import ByteBudget, run_over


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
    order = sorted(uploads, key=lambda upload: -upload.size)
    with cache_batch(cache):
        done = _upload_small(store, repository, branch, order, folder, threads, cache)
        left = [upload for upload in order if upload.key not in done]
        digests = _upload_each(store, repository, branch, left, folder, threads)
        if cache is not None:
            # By one thread, and not by those that upload: each call of the system that one of many
            # threads makes has it wait for the interpreter.
            for path, digest in digests.items():
                cache.add_file(repository, folder / path, digest)


def _upload_small(
    store: ObjectStore,
    repository: str,
    branch: str,
    uploads: Sequence[Upload],
    folder: Path,
    threads: int,
    cache: ObjectCache | None,
) -> set[str]:
    """Upload small files, many at once; return the keys of those that were."""
    paths: dict[str, str] = {}

    def read() -> Iterator[SmallWrite]:
        for upload in uploads:
            if upload.size <= LARGEST_IN_BATCH and not upload.metadata:
                paths[upload.key] = path = f"{folder}/{upload.path}"
                content = _read_as_scanned(path, upload)
                yield SmallWrite(upload.key, content, upload.content_type)

    done: set[str] = set()
    for write, digest in store.write_many(repository, branch, read(), threads):
        done.add(write.key)
        if cache is not None and write.content:
            content = memoryview(write.content)
            cache.add_written(repository, digest, content, paths[write.key])
    return done


def _upload_each(
    store: ObjectStore,
    repository: str,
    branch: str,
    uploads: Sequence[Upload],
    folder: Path,
    threads: int,
) -> dict[str, str]:
    """Upload files, each by a thread; return their digests by path."""
    memory = ByteBudget()
    digests: dict[str, str] = {}

    def send(upload: Upload) -> None:
        with memory.take(upload.size):
            path = folder / upload.path
            digests[upload.path] = _upload_one(store, repository, branch, upload, path)

    run_over(uploads, send, min(threads, len(uploads)), on_error=memory.close)
    return digests


def _read_as_scanned(source: str, upload: Upload) -> bytes:
    """Read a small file; raises ``ProjectionError`` if it is not as it was scanned."""
    with reading(upload.path):
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, upload.size + 1)
            is_as_scanned = StatRecord.of(os.fstat(descriptor)) == upload.record
        finally:
            os.close(descriptor)
    if not is_as_scanned or len(content) != upload.size:
        raise changed_meanwhile(upload.path)
    return content


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
