"""Remove folders by file descriptor: of any depth, and never through a link.

Each name is looked up in an open folder (``dir_fd``) and never along a path. So a link that takes
the place of a folder while the removal runs is removed itself, and what it leads to is not touched.

A folder inside another one is moved up to the top before it is emptied. So two open folders are
enough whatever the depth, and a removal that ends early leaves nothing that is harder to remove.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The errors of opening something that is not a folder, or is a link.
_NOT_A_FOLDER = {errno.ENOTDIR, errno.ELOOP}
# A process that the body left may still write; more often than this it is not followed.
_PASSES = 3


@contextmanager
def opened_folder(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    """Open a folder, or one in an open one, within the block; raises ``OSError`` for a link."""
    descriptor = os.open(folder, OPEN_FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remove_tree(folder: Path, *, seconds: float | None = None) -> None:
    """Remove a folder, with read-only folders in it; raises ``OSError`` if it cannot.

    Raises ``TimeoutError`` when ``seconds`` are over; what is left can be removed by another call.
    """
    with opened_folder(folder.parent) as parent:
        with _opened_for_removal(folder.name, parent) as top:
            empty_folder(top, seconds=seconds)
        os.rmdir(folder.name, dir_fd=parent)


def empty_folder(top: int, *, keep: Collection[str] = (), seconds: float | None = None) -> None:
    """Remove everything in an open folder but the files named in ``keep``.

    Raises the first error that left something there, and ``TimeoutError`` as ``remove_tree`` does.
    """
    _Removal(top, keep, seconds).run()


class _Removal:
    def __init__(self, top: int, keep: Collection[str], seconds: float | None) -> None:
        self._top = top
        self._keep = keep
        self._seconds = seconds
        self._started = time.monotonic()
        self._prefix = f".removed-{uuid.uuid4().hex}-"
        self._moved = 0
        # The first error of a pass is enough: there may be one for each of a million files.
        self._problems: list[OSError] = []

    def run(self) -> None:
        _allow_changes(self._top)
        for _ in range(_PASSES):
            self._problems.clear()
            waiting = self._remove_files(self._top)
            while waiting:
                waiting += self._remove_folder(waiting.pop())
            if not self._problems and self._is_empty():
                return
        if self._problems:
            raise self._problems[0]
        raise OSError(errno.ENOTEMPTY, "files are still being written here")

    def _remove_folder(self, name: str) -> list[str]:
        """Remove a folder of the top, and return the folders that were in it, moved up."""
        inner: list[str] = []
        try:
            with _opened_for_removal(name, self._top) as folder:
                inner = self._remove_files(folder)
            os.rmdir(name, dir_fd=self._top)
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno in _NOT_A_FOLDER:
                self._unlink(name, self._top)
            else:
                self._note(error)
        return inner

    def _remove_files(self, folder: int) -> list[str]:
        """Remove the files of an open folder; return the folders in it, which are in the top."""
        folders: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._check_time()
                is_folder = entry.is_dir(follow_symlinks=False)
                if folder != self._top and is_folder:
                    self._move_up(entry.name, folder, folders)
                elif is_folder:
                    folders.append(entry.name)
                elif folder != self._top or entry.name not in self._keep:
                    self._unlink(entry.name, folder)
        return folders

    def _move_up(self, name: str, folder: int, folders: list[str]) -> None:
        self._moved += 1
        fresh = f"{self._prefix}{self._moved}"
        try:
            try:
                os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=self._top)
            except PermissionError:
                # To move a folder is to change its entry for the folder above.
                _grant(name, folder)
                os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=self._top)
        except OSError as error:
            self._note(error)
        else:
            folders.append(fresh)

    def _unlink(self, name: str, folder: int) -> None:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) and not self._problems:
            self._problems.append(error)

    def _is_empty(self) -> bool:
        with os.scandir(self._top) as entries:
            return all(entry.name in self._keep for entry in entries)

    def _check_time(self) -> None:
        if self._seconds is not None and time.monotonic() - self._started > self._seconds:
            raise TimeoutError(f"the removal was not finished within {self._seconds:g} s")


@contextmanager
def _opened_for_removal(name: str, parent: int) -> Iterator[int]:
    """Open a folder of an open folder; one that a body made unreadable is made readable first."""
    try:
        descriptor = os.open(name, OPEN_FOLDER, dir_fd=parent)
    except PermissionError:
        _grant(name, parent)
        descriptor = os.open(name, OPEN_FOLDER, dir_fd=parent)
    try:
        _allow_changes(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _allow_changes(folder: int) -> None:
    with suppress(PermissionError):  # of another user; what cannot be removed is reported
        os.fchmod(folder, 0o700)


def _grant(name: str, parent: int) -> None:
    """Give this user all rights on a folder that cannot be opened, never on a link's target."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    descriptor = os.open(
        name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
    )
    try:
        # Linux changes the mode neither of a link's own name nor of a descriptor of this kind.
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)
