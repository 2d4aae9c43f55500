"""Which files have another content than the objects that they are compared with."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from perago.errors import ProjectionError
from perago.text import show_path
from perago.transfer.inventory import Digest, ObjectStore
from perago.transfer.scan import reading
from perago.transfer.threads import ByteBudget, run_over

# For files of more than a piece: those of smaller ones would only wait for the interpreter.
_HASHING_THREADS = 4
_HASH_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file that may differ from an object."""

    path: str
    key: str
    # Of the object.
    size: int
    digest: str
    # Whether the digest is that of the object's content, and not a checksum that may be a token.
    is_hashed: bool


def changed_files(
    store: ObjectStore,
    repository: str,
    ref: str,
    folder: Path,
    suspects: Sequence[Suspect],
    threads: int,
) -> set[str]:
    """Return the paths of the files that differ.

    An equal digest means an equal content. Another one says nothing where it may be a token: the
    object is read then, up to the first difference.
    """
    changed: set[str] = set()
    doubtful: list[Suspect] = []

    def compare_digests(one: Suspect) -> None:
        with reading(one.path), opened(folder / one.path) as file:
            if os.fstat(file.fileno()).st_size != one.size:
                changed.add(one.path)
            elif hashed(file) != one.digest:
                changed.add(one.path) if one.is_hashed else doubtful.append(one)

    large = [one for one in suspects if one.size > _HASH_PIECE]
    run_over(large, compare_digests, min(_HASHING_THREADS, len(large)))
    for one in suspects:
        if one.size <= _HASH_PIECE:
            compare_digests(one)
    memory = ByteBudget()

    def compare_contents(one: Suspect) -> None:
        with memory.take(one.size), reading(one.path), opened(folder / one.path) as file:
            pieces = memory.guarded(store.read(repository, ref, one.key, one.size))
            if any(file.read(len(piece)) != bytes(piece) for piece in pieces):
                changed.add(one.path)

    run_over(doubtful, compare_contents, min(threads, len(doubtful)), on_error=memory.close)
    return changed


def hashed(file: BinaryIO) -> str:
    """Return the digest of a file that was just opened."""
    digest = Digest(os.fstat(file.fileno()).st_size)
    while piece := file.read(_HASH_PIECE):
        digest.update(memoryview(piece))
    return digest.text()


def opened(path: Path) -> BinaryIO:
    """Open a file.

    Raises ``ProjectionError`` for what took its place since the scan: a pipe is not waited for,
    and a link not followed.
    """
    file = open(path, "rb", opener=_open_itself)  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ProjectionError(f"no longer a file: {show_path(str(path))}")
    return file


def _open_itself(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
