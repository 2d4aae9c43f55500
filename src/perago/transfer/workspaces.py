"""Local workspaces: the protocol's port for file tasks, over a folder and an object store."""

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
# A directory has this before its name while it is not complete: not yet, or not any more.
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
    """Makes local workspaces below a root folder."""

    root: Path
    engine: TransferEngine

    @contextmanager
    def open(self, execution: Execution) -> Iterator[LocalWorkspace]:
        with local_directory(self.root, execution) as directory:
            yield LocalWorkspace(directory, self.engine)


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """An attempt directory that this process made and holds the lock of."""

    path: Path
    data: Path
    # An open descriptor of the data folder: while it is held, its inode number cannot be reused,
    # so a folder with that number at that path is the very one we made.
    data_fd: int

    def assert_ours(self) -> None:
        """Refuse to publish from a folder that was replaced, swept or removed."""
        ours = os.fstat(self.data_fd)
        try:
            there = os.lstat(self.data)
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise ProjectionError(
                "the workspace folder is not the one this execution made: "
                "it was removed or replaced",
                hint="A body must keep its workspace folder; it may change anything inside it.",
            )

    def touch(self) -> int:
        """The file system's own idea of now, in nanoseconds."""
        lock = self.path / LOCK_FILE
        os.utime(lock)
        return lock.stat().st_ctime_ns


@contextmanager
def local_directory(root: Path, execution: Execution) -> Iterator[LocalDirectory]:
    """Make ``<root>/<task_id>-<execution_id>/``, locked; remove it at the end.

    It is prepared under another name and renamed when it is locked and marked, so that whoever
    sweeps the root never sees one that looks abandoned while it is being made.
    """
    # Absolute, so that a body that changes the current folder does not move its workspace.
    root = root.absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = directory_name(execution)
    fresh, final = root / f"{NEW_PREFIX}{name}", root / name
    fresh.mkdir(mode=0o700)
    with ExitStack() as held:
        # The last to be let go is the lock: nobody else may sweep what is being removed.
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
    """The name of an execution's directory below the root."""
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
    """Remove an attempt directory whose lock the caller holds; raises if any of it stays.

    Marker and lock go last, under the name of an incomplete directory: whenever this is killed,
    a sweep finds what is left and finishes it.
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
    """Remove a folder, also one whose body made parts of it read-only; raises if any of it stays.

    Not ``shutil.rmtree``: that recurses, and a body may nest folders deeper than Python does.
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
    """Remove what is not a folder; the folders. Links are removed, never followed."""
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
