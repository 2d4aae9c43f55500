"""Local workspaces: the protocol's port for file tasks, on a folder and a transfer engine."""

from __future__ import annotations

import array
import fcntl
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perago.errors import ProjectionError
from perago.protocol.identity import Execution
from perago.protocol.ports import Changes
from perago.protocol.workspace import NamedInput, StagingBranch, WorkspaceInput
from perago.text import as_utf8, show_path
from perago.transfer.engines import Fetched, Plan, TransferEngine
from perago.transfer.inventory import ATTEMPT_MARKER, Source
from perago.transfer.kept import KeptWorkspace
from perago.transfer.removal import empty_folder, opened_folder

_log = logging.getLogger(__name__)
_DATA = "data"
_INPUTS = "inputs"
_UNSAFE = re.compile(r"[^0-9A-Za-z_.-]+")
LOCK_FILE = ".perago-lock"
# Begins the name of a directory that is incomplete: being made, or being removed.
NEW_PREFIX = ".new-"
# Begins the name of one that an executor keeps; its process id follows.
KEPT_PREFIX = f"{NEW_PREFIX}kept-"
# An outcome waits for the removal of its directory no longer than this; a sweep removes the rest.
_REMOVAL_SECONDS = 5.0
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_TOP_OF_HIERARCHIES = 0x00020000


class LocalWorkspace:
    """One execution's data folder: fetch once, then compare, then stage."""

    def __init__(
        self, directory: LocalDirectory, engine: TransferEngine, kept: KeptWorkspace | None = None
    ) -> None:
        self.directory = directory
        # What was fetched, if the next workspace could take of it, and how many bytes that is.
        self.keepable: tuple[Source, int] | None = None
        self._engine = engine
        self._kept = kept
        self._fetched: tuple[Fetched, int] | None = None

    @property
    def data(self) -> Path:
        return self.directory.data

    def fetch(self, workspace: WorkspaceInput, prefix: str) -> dict[str, int]:
        source = Source(workspace.repository, workspace.ref, prefix)
        fetched = self._engine.fetch(source, self.data)
        if self._kept is not None:
            # Spark takes nothing of it, where it has moved this workspace.
            self._kept.drop()
        self._fetched = fetched, self.directory.touch()
        counts = fetched.counts()
        if "kept_files" in counts:  # an engine that takes from what is kept
            self.keepable = source, counts["bytes"]
        return counts

    def fetch_input(self, name: str, given: NamedInput) -> tuple[Path, dict[str, int]]:
        source = Source(given.workspace.repository, given.workspace.ref, given.prefix)
        folder = self.directory.path / _INPUTS / name
        folder.mkdir(mode=0o700, parents=True)
        fetched = self._engine.fetch(source, folder)
        return folder, fetched.counts()

    def changes(self) -> Plan:
        self.directory.assert_ours()
        if self._fetched is None:
            raise RuntimeError("the workspace was not fetched")
        fetched, body_started_ns = self._fetched
        return fetched.changes(body_started_ns)

    def stage(self, changes: Changes, staging: StagingBranch) -> dict[str, int]:
        if not isinstance(changes, Plan):
            raise TypeError(f"not a plan of this workspace: {type(changes).__name__}")
        self.directory.assert_ours()
        return self._engine.stage(changes, staging, self.data)


@dataclass(frozen=True, slots=True)
class LocalWorkspaces:
    """Opens local workspaces below a root folder.

    With ``kept``, the directory of a workspace whose block ends well is kept there and not removed,
    where an object cache says how much of the disk may be used for speed.
    """

    root: Path
    engine: TransferEngine
    kept: KeptWorkspace | None = None

    @contextmanager
    def open(self, execution: Execution) -> Iterator[LocalWorkspace]:
        with ExitStack() as held:
            directory = held.enter_context(local_directory(self.root, execution))
            cache = self.engine.cache
            workspace = LocalWorkspace(directory, self.engine, self.kept)
            with cache.inheriting(directory.path) if cache else nullcontext():
                yield workspace
            self._keep(workspace, held)

    def _keep(self, workspace: LocalWorkspace, held: ExitStack) -> None:
        """Keep the directory of a workspace; one that cannot be kept is removed with ``held``."""
        cache = self.engine.cache
        if self.kept is None or cache is None or workspace.keepable is None:
            return
        source, size = workspace.keepable
        with suppress(OSError, ProjectionError):
            if cache.space.allows(size, workspace.data):
                self.kept.keep(source, workspace.directory.set_aside(), held)


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """An attempt directory that this process made and whose lock it holds."""

    path: Path
    data: Path
    # Where it is while an executor keeps it.
    aside: Path
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

    def set_aside(self) -> Path:
        """Give the directory the name of a kept one; return where its data folder is then."""
        self.assert_ours()
        return self.path.rename(self.aside) / _DATA

    def touch(self) -> int:
        """Return the current time of the file system's clock, in nanoseconds."""
        lock = self.path / LOCK_FILE
        os.utime(lock)
        return lock.stat().st_ctime_ns


@contextmanager
def local_directory(root: Path, execution: Execution) -> Iterator[LocalDirectory]:
    """Make ``<root>/<task_id>-<execution_id>/``, locked; remove it at the end.

    The removal is bounded: what is left of a very large directory is removed by a later sweep.

    It is prepared under another name and renamed when it is locked and marked, so that a sweep
    of the root never finds one that looks abandoned while it is being made.
    """
    # Absolute, so that a body that changes the current folder does not move its workspace.
    root = root.absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    spread_folders(root)
    name = directory_name(execution)
    fresh, final = root / f"{NEW_PREFIX}{name}", root / name
    aside = root / f"{KEPT_PREFIX}{os.getpid()}-{_UNSAFE.sub('-', execution.id)}"
    fresh.mkdir(mode=0o700)
    with ExitStack() as held:
        # The lock is released last: no sweep may touch a directory that is being removed.
        lock_fd = os.open(
            fresh / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        held.callback(os.close, lock_fd)
        held.callback(_remove_first, final, aside, fresh)
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_marker(fresh, execution)
        (fresh / _DATA).mkdir(mode=0o700)
        data_fd = os.open(fresh / _DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, data_fd)
        fresh.rename(final)
        yield LocalDirectory(final, final / _DATA, aside, data_fd)


def spread_folders(parent: Path) -> None:
    """Place the folders that are made in ``parent`` apart, where the file system can do that.

    ext4 creates files near their folder and passes over every inode there that was freed within
    the last minutes. Where the folders before were just removed, as attempt directories are, one
    new file takes up to a millisecond of a core instead of 30 µs. Of a folder with the flag ``T``
    (chattr), ext4 puts each new folder somewhere else on the disk.

    It is a matter of speed alone: where it cannot be had, nothing is said.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = array.array("l", [0])
            fcntl.ioctl(descriptor, _GET_FLAGS, flags)
            if not flags[0] & _TOP_OF_HIERARCHIES:
                flags[0] |= _TOP_OF_HIERARCHIES
                fcntl.ioctl(descriptor, _SET_FLAGS, flags)
        finally:
            os.close(descriptor)


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


def _remove_first(*folders: Path) -> None:
    """Remove the first of these folders that exists. Cleanup never changes a result."""
    folder = next((path for path in folders if os.path.lexists(path)), None)
    if folder is None:
        return
    try:
        with opened_folder(folder) as top:
            remove_directory(folder, top, seconds=_REMOVAL_SECONDS)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return
        # What is left is found by its marker and removed by the next sweep.
        _log.warning(
            "failed to remove attempt directory %s: %s", show_path(str(folder)), as_utf8(str(error))
        )


def remove_directory(folder: Path, top: int, *, seconds: float | None = None) -> None:
    """Remove an attempt directory, open as ``top``, whose lock the caller holds.

    It gets the name of an incomplete directory first, and marker and lock are removed last: if
    this process is killed or ``seconds`` are over (``TimeoutError``), a sweep can still recognise
    the rest and remove it. Raises ``OSError`` if it cannot be removed.
    """
    with opened_folder(folder.parent) as root:
        name = folder.name
        current = os.stat(name, dir_fd=root, follow_symlinks=False)
        if not os.path.samestat(current, os.fstat(top)):
            raise NotADirectoryError(f"replaced by something else: {show_path(str(folder))}")
        if not name.startswith(NEW_PREFIX):
            name = f"{NEW_PREFIX}{name}"
            os.rename(folder.name, name, src_dir_fd=root, dst_dir_fd=root)
        empty_folder(top, keep=(ATTEMPT_MARKER, LOCK_FILE), seconds=seconds)
        for kept in (ATTEMPT_MARKER, LOCK_FILE):
            with suppress(FileNotFoundError):
                os.unlink(kept, dir_fd=top)
        os.rmdir(name, dir_fd=root)
