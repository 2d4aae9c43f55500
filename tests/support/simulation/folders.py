"""Real attempt directories of simulated executions, and the sweep of a worker that starts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perago.protocol.identity import Execution
from perago.transfer.sweep import sweep
from perago.transfer.workspaces import local_directory


class Folders:
    """A root on disk. No lock is simulated: the system's own keeps the sweep away."""

    def __init__(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="perago-simulation-")
        self._live: set[Path] = set()

    @contextmanager
    def made(self, execution: Execution) -> Iterator[None]:
        """An execution has its directory within the block."""
        with local_directory(Path(self._root.name), execution) as directory:
            self._live.add(directory.data)
            try:
                yield
            finally:
                self._live.discard(directory.data)

    def sweep(self) -> None:
        sweep(Path(self._root.name))
        gone = sorted(data.parent.name for data in self._live if not data.is_dir())
        if gone:
            raise AssertionError(f"invariant 8: directories of live executions were swept: {gone}")

    def close(self) -> None:
        self._root.cleanup()
