"""Local workspaces: the protocol's port for file tasks, on a folder and a transfer engine."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perago.errors import ProjectionError
from perago.protocol.identity import Execution
from perago.protocol.ports import Changes
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.transfer.engines import Fetched, Plan, TransferEngine
from perago.transfer.inventory import ATTEMPT_MARKER, Source

_log = logging.getLogger(__name__)
_DATA = "data"
_UNSAFE = re.compile(r"[^0-9A-Za-z_.-]+")
LOCK_FILE = ".perago-lock"
# Begins the name of a directory that is incomplete: being made, or being removed.
NEW_PREFIX = ".new-"


class LocalWorkspace:
    """One execution's data folder: fetch once, then compare, then stage."""

    def __init__(self, directory: LocalDirectory, engine: TransferEngine) -> None:
        self._directory = directory
        self._engine = engine
        self._fetched: tuple[Fetched, int] | None = None

    @property
    def data(self) -> Path:
        return self._directory.data

    def fetch(self, workspace: WorkspaceInput, prefix: str) -> dict[str, int]:
        source = Source(workspace.repository, workspace.ref, prefix)
        fetched = self._engine.fetch(source, self.data)
        self._fetched = fetched, self._directory.touch()
        return fetched.counts()

    def changes(self) -> Plan:
        self._directory.assert_ours()
        if self._fetched is None:
            raise RuntimeError("the workspace was not fetched")
        fetched, body_started_ns = self._fetched
        return fetched.changes(body_started_ns)

    def stage(self, changes: Changes, staging: StagingBranch) -> None:
        if not isinstance(changes, Plan):
            raise TypeError(f"not a plan of this workspace: {type(changes).__name__}")
        self._directory.assert_ours()
        self._engine.stage(changes, staging, self.data)


@dataclass(frozen=True, slots=True)
class LocalWorkspaces:
    """Opens local workspaces below a root folder."""

    root: Path
    engine: TransferEngine

    @contextmanager
    def open(self, execution: Execution) -> Iterator[LocalWorkspace]:
        with local_directory(self.root, execution) as directory:
            yield LocalWorkspace(directory, self.engine)


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """An attempt directory that this process made and whose lock it holds."""

    path: Path
    data: Path
    # An open descriptor of the data folder: while it is open, its inode number cannot be reused,
    # so a folder with that number at that path is the one that was made here.
    data_fd: int

    def assert_ours(self) -> None:
        """Raise ``ProjectionError`` if the data folder was replaced or removed."""
        ours = os.fstat(self.data_fd)
        try:
            current = os.lstat(self.data)
        except OSError:
            current = None
        if current is None or not os.path.samestat(current, ours):
            raise ProjectionError(
                "the workspace folder is not the one this execution made: "
                "it was removed or replaced",
                hint="A body must keep its workspace folder; it may change anything inside it.",
            )

    def touch(self) -> int:
        """Return the current time of the file system's clock, in nanoseconds."""
        lock = self.path / LOCK_FILE
        os.utime(lock)
        return lock.stat().st_ctime_ns


@contextmanager
def local_directory(root: Path, execution: Execution) -> Iterator[LocalDirectory]:
    """Make ``<root>/<task_id>-<execution_id>/``, locked; remove it at the end.

    It is prepared under another name and renamed when it is locked and marked, so that a sweep
    of the root never finds one that looks abandoned while it is being made.
    """
    # Absolute, so that a body that changes the current folder does not move its workspace.
    root = root.absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = directory_name(execution)
    fresh, final = root / f"{NEW_PREFIX}{name}", root / name
    fresh.mkdir(mode=0o700)
    with ExitStack() as held:
        # The lock is released last: no sweep may touch a directory that is being removed.
        lock_fd = os.open(
            fresh / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        held.callback(os.close, lock_fd)
        held.callback(_remove, fresh)
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_marker(fresh, execution)
        (fresh / _DATA).mkdir(mode=0o700)
        data_fd = os.open(fresh / _DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, data_fd)
        fresh.rename(final)
        held.callback(_remove, final)
        yield LocalDirectory(final, final / _DATA, data_fd)


def directory_name(execution: Execution) -> str:
    """Return the name of an execution's directory below the root."""
    return _UNSAFE.sub("-", f"{execution.attempt.task_id}-{execution.id}")


def _write_marker(folder: Path, execution: Execution) -> None:
    attempt = execution.attempt
    marker = {
        "task_id": attempt.task_id,
        "workflow_instance_id": attempt.workflow_instance_id,
        "retry_count": attempt.retry_count,
        "execution_id": execution.id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": int(psutil.boot_time()),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = folder / ATTEMPT_MARKER
    path.touch(mode=0o600)
    path.write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


def _remove(folder: Path) -> None:
    try:
        remove_directory(folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return
        # Cleanup never changes a result; the next start sweeps again.
        _log.warning("failed to remove attempt directory %s: %s", folder, error)


def remove_directory(folder: Path) -> None:
    """Remove an attempt directory whose lock the caller holds; raises ``OSError`` if it cannot.

    Marker and lock are removed last, under the name of an incomplete directory: if this process
    is killed, a sweep can still recognise the rest and remove it.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(f"not a folder any more: {folder}")
    folder.chmod(0o700)
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        elif entry.name not in {LOCK_FILE, ATTEMPT_MARKER}:
            entry.unlink()
    if not folder.name.startswith(NEW_PREFIX):
        folder = folder.rename(folder.with_name(f"{NEW_PREFIX}{folder.name}"))
    for name in (ATTEMPT_MARKER, LOCK_FILE):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    folder.rmdir()


def remove_tree(folder: Path) -> None:
    """Remove a folder, with read-only folders in it; raises ``OSError`` if it cannot.

    Not ``shutil.rmtree``, which recurses: a body may nest folders deeper than Python's limit.
    """
    problems: list[OSError] = []
    folders = [str(folder)]
    for inner in folders:  # grows while it is walked
        try:
            folders += _remove_files(inner)
        except OSError as error:
            problems.append(error)
    for inner in reversed(folders):
        try:
            os.rmdir(inner)  # noqa: PTH106  strings: a tree may have very many entries
        except OSError as error:
            problems.append(error)
    if os.path.lexists(folder):
        raise problems[0]


def _remove_files(folder: str) -> list[str]:
    """Remove everything but the folders, which are returned. Links are never followed."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(f"not a folder any more: {folder}")
    os.chmod(folder, 0o700)  # noqa: PTH101
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108
    return folders
