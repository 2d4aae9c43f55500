"""A repository of its own on the real LakeFS, and what a test does with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient

from perago.connections import LakeFSConnection
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.transfer.cache import ObjectCache
from perago.transfer.engine import Engine
from perago.transfer.inventory import RemoteObject
from perago.transfer.plan import SyncPlan
from perago.transfer.workspaces import LocalWorkspace, LocalWorkspaces
from support.lake_sdk import connect


@dataclass(frozen=True)
class LakeRepository:
    """One repository, empty at first."""

    connection: LakeFSConnection
    client: LakeFSClient
    repository: str
    root: Path
    # Of the workspaces; without one, each of them reads everything from LakeFS.
    cache: ObjectCache | None = None

    @property
    def objects(self) -> LakeFSObjects:
        return LakeFSObjects(self.connection)

    def through(self, endpoint: str, **options: Any) -> LakeRepository:
        """The same repository behind another address."""
        return replace(self, connection=replace(self.connection, endpoint=endpoint, **options))

    def put(
        self, key: str, content: bytes | Path, content_type: str = "text/plain", **metadata: str
    ) -> None:
        """Write one object to main, uncommitted."""
        source = content if isinstance(content, Path) else self.root / f"source-{uuid.uuid4().hex}"
        if isinstance(content, bytes):
            source.write_bytes(content)
        self.objects.write(
            self.repository, "main", key, source, content_type=content_type, metadata=metadata
        )
        if isinstance(content, bytes):
            source.unlink()

    def put_marker(self, key: str) -> None:
        """The S3 client would drop the slash at the end."""
        self.client.objects_api.upload_object(self.repository, "main", key, content=b"")

    def commit(self, branch: str = "main") -> str:
        creation = lakefs_sdk.CommitCreation(message="test", allow_empty=True)
        return str(self.client.commits_api.commit(self.repository, branch, creation).id)

    def listing(self, ref: str = "main") -> dict[str, RemoteObject]:
        return {item.key: item for item in self.objects.list(self.repository, ref, "")}

    def content(self, key: str, ref: str = "main") -> bytes:
        size = self.listing(ref)[key].size
        return b"".join(bytes(p) for p in self.objects.read(self.repository, ref, key, size))

    def addresses(self, ref: str) -> dict[str, str]:
        """Where each object's bytes are: a new upload gives a new place."""
        found: dict[str, str] = {}
        after, more = "", True
        while more:
            page = self.client.objects_api.list_objects(
                self.repository, ref, after=after, amount=1000
            )
            found.update({item.path: item.physical_address for item in page.results})
            after, more = page.pagination.next_offset, page.pagination.has_more
        return found

    @contextmanager
    def workspace(self, ref: str, prefix: str = "") -> Iterator[LocalWorkspace]:
        """An execution's workspace, fetched."""
        with self.unfetched() as workspace:
            workspace.fetch(self.input(ref), prefix)
            yield workspace

    @contextmanager
    def unfetched(self) -> Iterator[LocalWorkspace]:
        execution = Execution(Claim(Attempt("w", "t", 0, "r"), "c"), uuid.uuid4().hex)
        engine = Engine(self.objects, 16, self.cache)
        workspaces = LocalWorkspaces(self.root / "workspaces", engine)
        with workspaces.open(execution) as workspace:
            yield workspace

    def input(self, ref: str) -> WorkspaceInput:
        return WorkspaceInput(repository=self.repository, branch="main", ref_type="commit", ref=ref)

    def staging(self, ref: str) -> StagingBranch:
        staging = StagingBranch(self.repository, f"staging-{uuid.uuid4().hex}")
        LakeFSControl(self.connection).create_branch(staging, ref)
        return staging

    def stage(self, workspace: LocalWorkspace, ref: str) -> tuple[SyncPlan, str]:
        """Stage what the body did; the plan and the branch it went to."""
        plan = workspace.changes()
        staging = self.staging(ref)
        workspace.stage(plan, staging)
        return plan.collect(), staging.branch


def a_new_repository(
    connection: LakeFSConnection, root: Path, store: str = "local://"
) -> LakeRepository:
    """An empty repository below ``store``, which is ``s3://BUCKET/`` for a LakeFS on S3."""
    client = connect(connection)
    name = f"transfer-{uuid.uuid4().hex[:12]}"
    client.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(
            name=name, storage_namespace=f"{store}{name}", default_branch="main"
        )
    )
    return LakeRepository(connection, client, name, root)
