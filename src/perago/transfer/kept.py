"""The kept workspace: the files of an executor's last attempt, from which its next one takes.

To create a file and to remove it takes several times as long as to read it. So the attempt
directory of an attempt that ended well stays for a while, with its lock, and the next attempt of
the same executor moves the files that it needs from there into its own data folder.

Nothing of a kept workspace is trusted: the listing says what a file must be, and its content is
hashed. A program may still have a file open for writing, for example a body that never closed it;
the kernel tells that by a lease, which it gives for no such file. And every file is moved into a
folder that is made anew, under its lease: an open folder, a current folder or a thread that a body
left leads only to what stays behind, and that is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perago.transfer.inventory import DIGEST, PIECE, Digest, RemoteObject, Source, digest_of
from perago.transfer.removal import opened_folder
from perago.transfer.scan import FetchedFile, StatRecord

# Without a next attempt, the directory is removed after so long.
KEPT_SECONDS = 10.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_HASH_PIECE = 1 << 20
# By folder, the names and objects of the files in it.
_Folders = dict[str, list[tuple[str, RemoteObject]]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """One attempt directory that is kept."""

    repository: str
    prefix: str
    data: Path
    until: float
    # Removes the directory when it is closed, and then releases its lock.
    held: ExitStack

    def remove(self) -> None:
        with suppress(OSError):  # what is left is removed after the attempt
            self.held.close()


class KeptWorkspace:
    """What one executor keeps, which runs one attempt after the other: at most one directory."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def keep(self, source: Source, data: Path, held: ExitStack) -> None:
        """Keep a data folder; what ``held`` would do at the end of its block waits until then."""
        self.drop()
        until = time.monotonic() + KEPT_SECONDS
        self._kept = _Kept(source.repository, source.prefix, data, until, held.pop_all())

    def take(
        self, source: Source, files: Mapping[str, RemoteObject], data: Path
    ) -> dict[str, FetchedFile]:
        """Move files into an empty folder, and remove what is left; return what was moved.

        Only from a workspace of the same repository, since a client may give an object any
        checksum (:mod:`perago.transfer.cache`), and of the same prefix.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            return {}
        try:
            is_of_source = (kept.repository, kept.prefix) == (source.repository, source.prefix)
            return _move_files(kept.data, files, data) if is_of_source else {}
        finally:
            kept.remove()

    def drop(self) -> None:
        """Remove what is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.remove()

    def seconds_left(self) -> float | None:
        """Return after how long what is kept should be dropped; None if nothing is."""
        return None if self._kept is None else max(0.0, self._kept.until - time.monotonic())


class _FileTraits(NamedTuple):
    """What files that are made at a place have in common, whatever their content is."""

    mode: int
    owner: int
    group: int
    links: int
    attributes: dict[str, bytes]

    @classmethod
    def of_new_file(cls, path: str) -> _FileTraits:
        """Make and remove a file; raises ``OSError`` also where there are no leases."""
        os.close(os.open(path, _CREATE, 0o666))
        descriptor = os.open(path, _READ)
        try:
            _lease(descriptor)
            found, attributes = os.fstat(descriptor), _attributes(descriptor)
            return cls(found.st_mode, found.st_uid, found.st_gid, found.st_nlink, attributes)
        finally:
            os.close(descriptor)
            os.unlink(path)  # noqa: PTH108

    def fit(self, descriptor: int, found: os.stat_result) -> bool:
        """Return whether an open file has them."""
        return (
            found.st_mode == self.mode
            and found.st_uid == self.owner
            and found.st_gid == self.group
            and found.st_nlink == self.links
            and _attributes(descriptor) == self.attributes
        )


def _move_files(
    kept: Path, files: Mapping[str, RemoteObject], data: Path
) -> dict[str, FetchedFile]:
    """Move the files that are as a download would write them; an error only means fewer of them."""
    moved: dict[str, FetchedFile] = {}
    if sys.platform != "linux":  # no leases
        return moved
    with suppress(OSError), opened_folder(kept) as top:
        wanted = _FileTraits.of_new_file(f"{data}.probe")
        for folder, inside in _by_folder(files).items():
            with suppress(OSError), _opened_below(top, folder) as source:
                target = f"{data}/{folder}"
                os.makedirs(target, exist_ok=True)  # noqa: PTH103
                for name, remote in inside:
                    if file := _move_file(source, name, f"{target}{name}", remote, wanted):
                        moved[folder + name] = file
    return moved


def _by_folder(files: Mapping[str, RemoteObject]) -> _Folders:
    """Group the files that may be taken by their folder, which is empty or ends in a slash.

    Of a larger object the checksum may be none of the content, and the object cache has the file.
    """
    folders: _Folders = {}
    for path, remote in files.items():
        if 0 < remote.size <= PIECE and DIGEST.fullmatch(remote.checksum):
            parent, slash, name = path.rpartition("/")
            folders.setdefault(parent + slash, []).append((name, remote))
    return folders


def _move_file(
    source: int, name: str, target: str, remote: RemoteObject, wanted: _FileTraits
) -> FetchedFile | None:
    """Move one file out of an open folder; None if it is not as a download would write it."""
    try:
        descriptor = os.open(name, _READ, dir_fd=source)
    except OSError:
        return None
    try:
        return _move_opened(descriptor, source, name, target, remote, wanted)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _move_opened(
    descriptor: int, source: int, name: str, target: str, remote: RemoteObject, wanted: _FileTraits
) -> FetchedFile | None:
    found = os.fstat(descriptor)
    # Nothing is read of what is no file: the mode says that, too.
    if found.st_size != remote.size or not wanted.fit(descriptor, found):
        return None
    _lease(descriptor)
    if _digest(descriptor, remote.size) != remote.checksum:
        return None
    # A body may go by times, as make does: it finds those of a download.
    os.utime(descriptor)
    os.rename(name, target, src_dir_fd=source)
    # The lease is still there: no process has opened the file for writing before this record;
    # and it is this very file, with no other name.
    placed = os.lstat(target)
    if placed.st_ino == found.st_ino and placed.st_nlink == 1 and _is_leased(descriptor):
        return FetchedFile(StatRecord.of(placed), remote.checksum)
    os.unlink(target)  # noqa: PTH108
    return None


def _lease(descriptor: int) -> None:
    """Take a lease on an open file; raises ``OSError`` if a program has it open for writing.

    One that wants to open it now waits until it is closed here. The signal that tells of this is
    one that does nothing: the usual one ends the process.
    """
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _is_leased(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def _digest(descriptor: int, size: int) -> str:
    if size <= _HASH_PIECE:
        return digest_of(os.read(descriptor, size))
    digest = Digest(size)
    while size > 0 and (piece := os.read(descriptor, min(size, _HASH_PIECE))):
        digest.update(memoryview(piece))
        size -= len(piece)
    return digest.text()


def _attributes(descriptor: int) -> dict[str, bytes]:
    """Read the extended attributes; some systems give them to every file."""
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return {}


@contextmanager
def _opened_below(top: int, folder: str) -> Iterator[int]:
    """Open a folder below an open one, through no link."""
    with ExitStack() as opened:
        here = top
        for name in folder.split("/")[:-1]:
            here = opened.enter_context(opened_folder(name, here))
        yield here
