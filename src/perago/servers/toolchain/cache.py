"""Keep artifacts that are expensive to make in a folder; each is made once and atomically.

Written by hand because download caches store single files by address; here an artifact is a
directory that a build or a resolver fills. It is filled under a temporary name on the same file
system and renamed when complete, under a lock that the kernel releases when its process dies.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from perago.errors import SetupError
from perago.home import absolute
from perago.progress import note
from perago.servers.toolchain import tool

# Longer than the slowest build, so that a waiting process outlasts a building one.
_WAIT_SECONDS = 3600.0


class Cache:
    """Artifacts by name; a name contains the version, so an artifact never changes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Cache:
        """Open the cache that ``PERAGO_CACHE`` names, else the platform's folder for caches."""
        chosen = os.environ.get("PERAGO_CACHE")
        root = Path(chosen) if chosen else platformdirs.user_cache_path("perago")
        return cls(absolute(root))

    def obtain(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the directory of an artifact; ``make(empty_directory)`` makes a missing one."""
        final = self.root / name
        try:
            # For the owner alone, whatever the umask says.
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_exposed(self.root)
            if final.is_dir():
                refuse_exposed(final, *final.iterdir())
                return final
            with self._locked(name):
                # The process that had the lock before may have made it.
                if not final.is_dir():
                    self._make(final, make)
        except OSError as error:
            raise self._explained(error) from error
        return final

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        lock = FileLock(self.root / f"{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            note(f"waiting for another process that makes {name} …")
            try:
                lock.acquire(timeout=_WAIT_SECONDS)
            except Timeout as error:
                raise SetupError(
                    f"another process has been making {name} for an hour",
                    hint=f"End the process that has locked {lock.lock_file}.",
                ) from error
        try:
            yield
        finally:
            lock.release()

    def _make(self, final: Path, make: Callable[[Path], None]) -> None:
        partial = final.with_name(f"{final.name}.partial")
        # The lock is held, so a partial directory was left by a killed process.
        _remove(partial)
        partial.mkdir(mode=0o700)
        try:
            make(partial)
            _keep_others_from_writing(partial)
            partial.rename(final)
        finally:
            _remove(partial)

    def _explained(self, error: OSError) -> SetupError:
        if error.errno in tool.DISK_FULL:
            return tool.disk_full(f"could not write to the cache {self.root}")
        return SetupError(
            f"could not write to the cache {self.root}: {error.strerror or error}",
            hint="Set PERAGO_CACHE to a folder that can be written to.",
        )


def refuse_exposed(*paths: Path) -> None:
    """Raise ``SetupError`` if another user owns or may change a path: what is in it is run."""
    for path in paths:
        found = path.stat()
        # Root can change everything anyway, and an image may bring a cache of root's.
        if found.st_uid not in {os.geteuid(), 0}:
            raise SetupError(
                f"the cache {path} belongs to another user (uid {found.st_uid}), whose programs "
                "Perago would run",
                hint="Set PERAGO_CACHE to a folder of your own.",
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SetupError(
                f"other users can write to the cache {path}, from which Perago runs programs",
                hint=f"If you trust what is in it, run: chmod -R go-w {shlex.quote(str(path))}; "
                "otherwise remove it, or set PERAGO_CACHE to a folder of your own.",
            )


def _keep_others_from_writing(directory: Path) -> None:
    """Remove what a umask such as 002 grants."""
    for path in directory.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
