"""Local workspaces: the protocol's port for file tasks, over a folder and an object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perago.protocol.identity import Execution
from perago.protocol.ports import Changes
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.transfer.directory import LocalDirectory, local_directory
from perago.transfer.port import Fetched, Plan, Source, TransferEngine


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
