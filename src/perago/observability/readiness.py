"""Whether a worker is ready for work: ``/readyz`` lists what is in its way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from perago.observability.metrics import WorkerMetrics

# Several polls and the longest pause after a failed one.
_LONGEST_SILENCE = 90.0


class Readiness:
    """Checks that the worker runs, that Conductor answers its polls, and that the disk has room."""

    def __init__(
        self,
        metrics: WorkerMetrics,
        root: Path,
        min_free_bytes: int,
        is_running: Callable[[], bool],
    ) -> None:
        self._metrics = metrics
        self._root = root
        self._min_free_bytes = min_free_bytes
        self._is_running = is_running

    def problems(self) -> list[str]:
        """List what keeps the worker from its work; an empty list means ready."""
        disk = disk_problems(self._root, self._min_free_bytes)
        return [*self._of_worker(), *self._of_polls(), *disk]

    def _of_worker(self) -> Iterator[str]:
        if not self._is_running():
            yield "the worker is starting or stopping"

    def _of_polls(self) -> Iterator[str]:
        if not self._metrics.has_polled:
            yield "Conductor has not answered a poll yet"
            return
        silence = self._metrics.unanswered_seconds()
        if silence > _LONGEST_SILENCE:
            yield f"Conductor has not answered a poll for {silence:.0f} s"


def disk_problems(root: Path, min_free_bytes: int) -> Iterator[str]:
    """Yield why the disk of the workspaces cannot hold another one."""
    try:
        found = os.statvfs(nearest_folder(root))
    except OSError as error:
        yield f"the folder of workspaces cannot be read: {error.strerror}"
        return
    free = found.f_bavail * found.f_frsize
    if free < min_free_bytes:
        yield f"the workspaces' disk has {free} bytes left, less than PERAGO_MIN_FREE_BYTES"
    # Some file systems, such as btrfs, count no inodes at all.
    if found.f_files and not found.f_favail:
        yield "the workspaces' disk can hold no more files"


def nearest_folder(path: Path) -> Path:
    """Find the folder that exists: a root that is not there yet will be made in it."""
    # Not Path.exists, which raises where a folder above may not be looked into.
    while not os.access(path, os.F_OK) and path != path.parent:
        path = path.parent
    return path
