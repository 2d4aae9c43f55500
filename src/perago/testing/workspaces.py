"""Workspaces in memory: the projection is a dict, and a body changes that dict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perago.names import listing_prefix
from perago.protocol.identity import Execution
from perago.protocol.ports import Changes
from perago.protocol.workspace import NamedInput, StagingBranch, WorkspaceInput
from perago.testing.lake import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.inventory import project


@dataclass(frozen=True, slots=True)
class DictChanges:
    """The differences between two dicts of files."""

    writes: dict[str, bytes]
    deletes: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.writes or self.deletes)

    def summary(self) -> dict[str, int]:
        return {"uploads": len(self.writes), "deletes": len(self.deletes)}


class InMemoryDirectory:
    """One execution's projection. Nothing exists at the path ``data``."""

    def __init__(self, lake: InMemoryLake, data: Path) -> None:
        self.data = data
        self.files: dict[str, bytes] = {}
        self._lake = lake
        self._fetched: dict[str, bytes] = {}
        self._prefix = ""
        # The folders of the inputs, with their files.
        self.inputs: dict[Path, dict[str, bytes]] = {}

    def fetch(self, workspace: WorkspaceInput, prefix: str) -> dict[str, int]:
        self._fetched = self._read(workspace, prefix)
        self.files.update(self._fetched)
        self._prefix = listing_prefix(prefix)
        return {"objects": len(self.files)}

    def fetch_input(self, name: str, given: NamedInput) -> tuple[Path, dict[str, int]]:
        folder = self.data / "inputs" / name
        files = self.inputs[folder] = self._read(given.workspace, given.prefix)
        return folder, {"objects": len(files)}

    def _read(self, workspace: WorkspaceInput, prefix: str) -> dict[str, bytes]:
        objects = self._lake.objects
        repository, ref = workspace.repository, workspace.ref
        listing = objects.list(repository, ref, listing_prefix(prefix))
        return {
            path: b"".join(objects.read(repository, ref, item.key, item.size))
            for path, item in project(listing, prefix).files.items()
        }

    def changes(self) -> DictChanges:
        before = self._fetched
        writes = {
            path: body for path, body in sorted(self.files.items()) if before.get(path) != body
        }
        return DictChanges(writes, tuple(sorted(set(before) - set(self.files))))

    def stage(self, changes: Changes, staging: StagingBranch) -> dict[str, int]:
        if not isinstance(changes, DictChanges):
            raise TypeError(f"not the changes of this workspace: {type(changes).__name__}")
        objects = self._lake.objects
        if changes.deletes:
            keys = [self._prefix + path for path in changes.deletes]
            objects.delete(staging.repository, staging.branch, keys)
        for path, body in changes.writes.items():
            item = StoredObject(body)
            objects.put(staging.repository, staging.branch, self._prefix + path, item)
        return {}


class InMemoryWorkspaces:
    """Implements ``Workspaces``. A body finds its files with :meth:`files_at`."""

    def __init__(self, lake: InMemoryLake) -> None:
        self._lake = lake
        self._open: dict[Path, InMemoryDirectory] = {}

    @contextmanager
    def open(self, execution: Execution) -> Iterator[InMemoryDirectory]:
        data = Path("in-memory") / f"{execution.attempt.task_id}-{execution.id}"
        directory = self._open[data] = InMemoryDirectory(self._lake, data)
        try:
            yield directory
        finally:
            del self._open[data]

    def files_at(self, data: Path) -> dict[str, bytes]:
        """Return the files of an open directory, by relative path; a body changes this dict."""
        return self._open[data].files

    def input_files_at(self, folder: Path) -> dict[str, bytes]:
        """Return the files of an input of an open directory, by relative path."""
        return next(it.inputs[folder] for it in self._open.values() if folder in it.inputs)

    @property
    def open_count(self) -> int:
        return len(self._open)
