"""The folder of one execution: made whole, locked while it is used, known by its identity."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perago.errors import ProjectionError
from perago.protocol.identity import Execution
from perago.transfer.inventory import ATTEMPT_MARKER
from perago.transfer.removal import LOCK_FILE, NEW_PREFIX, remove_directory

_log = logging.getLogger(__name__)

_DATA = "data"
_UNSAFE = re.compile(r"[^0-9A-Za-z_.-]+")


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
