"""The sync plan: pure, from what was fetched and what is there now to what must be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perago.errors import ProjectionError
from perago.transfer.inventory import (
    ACTIONS_FOLDER,
    DEFAULT_CONTENT_TYPE,
    Projection,
    RemoteObject,
)
from perago.transfer.paths import path_problem
from perago.transfer.scan import FetchedFile, LocalTree, StatRecord


@dataclass(frozen=True, slots=True)
class Upload:
    """One file to write; a changed object keeps its content type and user metadata."""

    path: str
    key: str
    size: int
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What staging has to do."""

    uploads: tuple[Upload, ...]
    deletes: tuple[str, ...]
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.uploads or self.deletes)

    def summary(self) -> dict[str, int]:
        return {
            "uploads": len(self.uploads),
            "upload_bytes": sum(upload.size for upload in self.uploads),
            "deletes": len(self.deletes),
            "unchanged": self.unchanged,
        }


def suspects(tree: LocalTree, fetched: dict[str, FetchedFile], body_started_ns: int) -> list[str]:
    """Files of the fetched projection whose stat record alone does not prove them unchanged."""
    return [
        path
        for path, record in tree.files.items()
        if path in fetched and not _is_proven_unchanged(record, fetched[path], body_started_ns)
    ]


def _is_proven_unchanged(record: StatRecord, before: FetchedFile, body_started_ns: int) -> bool:
    return record == before.record and record.is_older_than(body_started_ns)


def build_sync_plan(
    *,
    projection: Projection,
    tree: LocalTree,
    prefix: str,
    is_changed: Callable[[str], bool],
) -> SyncPlan:
    """Compare the remote projection with the local tree; ``is_changed`` decides for both sides."""
    _refuse_unpublishable(tree, prefix)
    start = f"{prefix}/" if prefix else ""
    uploads: list[Upload] = []
    unchanged = 0
    for path, record in sorted(tree.files.items()):
        before = projection.files.get(path)
        if before is not None and not is_changed(path):
            unchanged += 1
        else:
            uploads.append(_upload(path, start + path, record.size, before))
    deletes = [item.key for path, item in projection.files.items() if path not in tree.files]
    deletes += [item.key for path, item in projection.markers.items() if path not in tree.folders]
    return SyncPlan(tuple(uploads), tuple(sorted(deletes)), unchanged)


def _upload(path: str, key: str, size: int, before: RemoteObject | None) -> Upload:
    if before is None:
        return Upload(path, key, size)
    return Upload(path, key, size, before.content_type, before.metadata)


def _refuse_unpublishable(tree: LocalTree, prefix: str) -> None:
    for path in tree.files:
        if why := path_problem(path):
            raise ProjectionError(f"a file cannot be published: {path!r}: {why}")
        if not prefix and path.startswith(ACTIONS_FOLDER):
            raise ProjectionError(
                f"a task must not write LakeFS actions: {path}",
                hint="_lakefs_actions/ is never part of a workspace; remove it in the body.",
            )
