"""What a workspace leaves to the object cache: its large files, moved and not copied.

A workspace needs its files until it is over. Then they would be removed: to move one into the cache
costs nothing, and a copy costs as much as its download.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perago.transfer.cache_space import CacheSpace, make_folder, on_disk
from perago.transfer.scan import StatRecord

# The outcome of an attempt waits for the moves no longer than this; what is left is removed.
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PromisedFile:
    """A file of a workspace, and the entry that it becomes unless anything is done to it."""

    path: str
    record: StatRecord
    entry: str

    def is_as_promised(self) -> bool:
        """Return whether nothing was done to the file: not even another name was given to it."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return StatRecord.of(found) == self.record and found.st_nlink == 1


class Inheritance:
    """The files that workspaces have promised to a cache."""

    def __init__(self, folder: Path, space: CacheSpace) -> None:
        self._folder = folder
        self._space = space
        self._promised: dict[str, list[PromisedFile]] = {}

    def begin(self, workspace: Path) -> None:
        """Let a workspace promise files, if it is on the file system of the cache."""
        with suppress(OSError):  # a cache whose folder is gone fails no attempt
            if workspace.stat().st_dev == self._folder.stat().st_dev:
                self._promised[str(workspace)] = []

    def promise(self, path: str, entry: str) -> bool:
        """Promise a file; return False if it is in none of the workspaces that can do that."""
        # A copy: workspaces of other threads may begin and end meanwhile.
        for workspace, promised in list(self._promised.items()):
            if path.startswith(f"{workspace}/"):
                promised.append(PromisedFile(path, StatRecord.of(os.lstat(path)), entry))
                return True
        return False

    def end(self, workspace: Path) -> list[PromisedFile]:
        """Return what a workspace has promised, and forget it."""
        return self._promised.pop(str(workspace), [])

    def take(self, promised: list[PromisedFile]) -> None:
        """Move files into the cache. A change that no record shows is found out by the digest."""
        ends = time.monotonic() + _SECONDS
        for file in promised:
            if time.monotonic() > ends:
                return
            if not file.is_as_promised() or os.path.lexists(file.entry):
                continue
            if self._space.reserve(on_disk(file.record.size)):
                make_folder(file.entry)
                os.chmod(file.path, 0o600)  # noqa: PTH101
                os.rename(file.path, file.entry)  # noqa: PTH104
                os.utime(file.entry)
