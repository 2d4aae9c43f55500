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
from perago.transfer.engine import Engine
from perago.transfer.inventory import Projection, listing_prefix, project
from perago.transfer.paths import FileSystem, check_projection
from perago.transfer.plan import SyncPlan, build_sync_plan, suspects
from perago.transfer.scan import FetchedFile, scan


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What the body found in its folder."""

    projection: Projection
    files: dict[str, FetchedFile]
    prefix: str
    body_started_ns: int


class LocalWorkspace:
    """One execution's data folder: fetch once, then compare, then stage."""

    def __init__(self, directory: LocalDirectory, engine: Engine) -> None:
        self._directory = directory
        self._engine = engine
        self._fetched: _Fetched | None = None

    @property
    def data(self) -> Path:
        return self._directory.data

    def fetch(self, workspace: WorkspaceInput, prefix: str) -> dict[str, int]:
        repository, ref = workspace.repository, workspace.ref
        listing = self._engine.store.list(repository, ref, listing_prefix(prefix))
        projection = project(listing, prefix)
        check_projection(projection, self.data, FileSystem.probe(self.data))
        files = self._engine.download(repository, ref, projection, self.data)
        self._fetched = _Fetched(projection, files, prefix, self._directory.touch())
        return {
            "objects": len(files),
            "bytes": sum(item.size for item in projection.files.values()),
        }

    def changes(self) -> SyncPlan:
        self._directory.assert_ours()
        fetched = self._require_fetched()
        tree = scan(self.data)
        suspicious = suspects(tree, fetched.files, fetched.body_started_ns)
        hashes = self._engine.hash(self.data, suspicious)

        def is_changed(path: str) -> bool:
            return path in hashes and hashes[path] != fetched.files[path].md5

        return build_sync_plan(
            projection=fetched.projection, tree=tree, prefix=fetched.prefix, is_changed=is_changed
        )

    def stage(self, changes: Changes, staging: StagingBranch) -> None:
        if not isinstance(changes, SyncPlan):
            raise TypeError(f"not a plan of this workspace: {type(changes).__name__}")
        self._directory.assert_ours()
        self._engine.stage(staging.repository, staging.branch, changes, self.data)

    def _require_fetched(self) -> _Fetched:
        if self._fetched is None:
            raise RuntimeError("the workspace was not fetched")
        return self._fetched


@dataclass(frozen=True, slots=True)
class LocalWorkspaces:
    """Makes local workspaces below a root folder."""

    root: Path
    engine: Engine

    @contextmanager
    def open(self, execution: Execution) -> Iterator[LocalWorkspace]:
        with local_directory(self.root, execution) as directory:
            yield LocalWorkspace(directory, self.engine)
