"""Run by tests of the object cache, as processes of their own that share one cache."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

from perago.transfer import cache as cache_module
from perago.transfer import cache_packs
from perago.transfer.cache import ObjectCache
from perago.transfer.inventory import Digest, RemoteObject


def content_of(number: int) -> bytes:
    """The content with a number, larger for every seventh."""
    # Not secret, but the same in each process.
    return Random(number).randbytes(3_000_000 if number % 7 == 0 else 20_000)  # noqa: S311


def remote_of(content: bytes, **fields: str) -> RemoteObject:
    digest = Digest(len(content))
    digest.update(memoryview(content))
    return RemoteObject("key", len(content), checksum=digest.text(), **fields)  # type: ignore[arg-type]


def take(cache: ObjectCache, remote: RemoteObject, repository: str = "repo") -> bytes | None:
    """What a workspace would get of an object."""
    found = cache.find(repository, remote)
    if found is None:
        return None
    with closing(found), tempfile.TemporaryFile() as file:
        is_copied = found.copy_to(file.fileno())
        assert os.fstat(file.fileno()).st_size == (remote.size if is_copied else 0)
        file.seek(0)
        return file.read() if is_copied else None


def put(cache: ObjectCache, content: bytes, repository: str = "repo") -> RemoteObject:
    remote = remote_of(content)
    cache.add_read(repository, remote, remote.checksum, memoryview(content))
    cache.end_batch()
    return remote


def use(cache: ObjectCache, seed: int, rounds: int) -> int:
    """Take and add contents by chance; how many were found. A wrong one raises."""
    chance, hits = Random(seed), 0  # noqa: S311
    for _ in range(rounds):
        content = content_of(chance.randrange(30))
        taken = take(cache, remote_of(content))
        if taken is None:
            put(cache, content)
        else:
            assert taken == content
            hits += 1
    return hits


def write_half(cache: ObjectCache, number: int) -> None:
    """Write half of an entry, say so, and wait for the end."""

    def half(descriptor: int, piece: memoryview, *_: int) -> int:
        os.write(descriptor, piece[: len(piece) // 2])
        print("half", flush=True)
        time.sleep(120)
        raise AssertionError("nobody ended this process")

    cache_module.write_all = half  # type: ignore[attr-defined]
    cache_packs.write_at = half  # type: ignore[assignment]
    put(cache, content_of(number))


def main() -> None:
    folder, limit, order, *numbers = json.loads(sys.argv[1])
    cache = ObjectCache(Path(folder), limit)
    cache.prepare()
    if order == "use":
        print(use(cache, *numbers))
    else:
        write_half(cache, *numbers)


if __name__ == "__main__":
    main()
