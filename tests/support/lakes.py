"""One repository of a lake, real or in memory, with what the cases need to arrange and to look."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import lakefs_sdk

from perago.connections import LakeFSConnection
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.ports import Lake
from perago.protocol.workspace import StagedWorkspace, StagingBranch
from perago.testing import InMemoryLake, InMemoryObjects
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE
from support.lake_sdk import connect

PROTECTED = "protected"


@dataclass(frozen=True)
class LakeUnderTest:
    """A fresh repository with a branch ``main``; a branch called ``protected`` is protected."""

    lake: Lake
    objects: LakeFSObjects | InMemoryObjects
    repository: str
    folder: Path

    def put(
        self,
        branch: str,
        key: str,
        content: bytes = b"content",
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: dict[str, str] | None = None,
    ) -> None:
        source = self.folder / uuid.uuid4().hex
        source.write_bytes(content)
        self.objects.write(
            self.repository,
            branch,
            key,
            source,
            content_type=content_type,
            metadata=metadata or {},
        )

    def staging(self, branch: str) -> StagingBranch:
        return StagingBranch(self.repository, branch)

    def commit(self, branch: str, metadata: dict[str, str] | None = None) -> StagedWorkspace:
        return self.lake.commit(self.staging(branch), "a commit", metadata or {})

    def put_and_commit(self, branch: str, key: str, content: bytes = b"content") -> str:
        self.put(branch, key, content)
        return self.commit(branch).commit

    def branch(self, name: str, source: str) -> None:
        self.lake.create_branch(self.staging(name), source)

    def staged(self, name: str, source: str, key: str, content: bytes) -> StagedWorkspace:
        """A branch from ``source`` with one write, committed."""
        self.branch(name, source)
        self.put(name, key, content)
        return self.commit(name)

    def merge(
        self, staged: StagedWorkspace, target: str = "main", metadata: dict[str, str] | None = None
    ) -> str:
        return self.lake.merge(
            staged, target, message="a merge", metadata=metadata or {}, timeout=30
        )

    def relocate(self, licence: str, target: str = "main") -> None:
        self.lake.relocate(self.staging(licence), target, timeout=30)

    def head(self, branch: str = "main") -> str:
        return self.lake.get_head(self.repository, branch).id

    def is_dirty(self, branch: str = "main") -> bool:
        return self.lake.has_uncommitted_changes(self.repository, branch)

    def keys(self, ref: str, prefix: str = "") -> list[str]:
        return [item.key for item in self.objects.list(self.repository, ref, prefix)]

    def read(self, ref: str, key: str, size: int | None = None) -> bytes:
        """The bytes of an object; its size, as always, comes from a listing."""
        if size is None:
            listed = self.objects.list(self.repository, ref, key)
            size = next((item.size for item in listed if item.key == key), 1)
        return b"".join(self.objects.read(self.repository, ref, key, size))

    def install_fence(self) -> str:
        """Commit the hard fence's action file to ``main``."""
        return self.put_and_commit("main", ACTION_PATH, ACTION_TEXT.encode())


def fake_lake(folder: Path) -> LakeUnderTest:
    lake = InMemoryLake()
    lake.create_repository("repo")
    lake.repository("repo").protected.append(PROTECTED)
    return LakeUnderTest(lake, lake.objects, "repo", folder)


def real_lake(connection: LakeFSConnection, folder: Path, store: str = "local://") -> LakeUnderTest:
    """A repository of a server, below ``store``."""
    repository = f"contract-{uuid.uuid4().hex[:12]}"
    client = connect(connection)
    client.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(
            name=repository, storage_namespace=f"{store}{repository}", default_branch="main"
        )
    )
    # Before anything else: LakeFS keeps the rules it has once read for some seconds.
    client.repositories_api.set_branch_protection_rules(
        repository, [lakefs_sdk.BranchProtectionRule(pattern=PROTECTED)]
    )
    return LakeUnderTest(LakeFSControl(connection), LakeFSObjects(connection), repository, folder)
