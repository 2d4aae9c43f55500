"""The sync plan: the uploads and deletes that make a branch equal to the data folder. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perago.names import listing_prefix
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE, Projection, RemoteObject
from perago.transfer.paths import check_publishable
from perago.transfer.scan import FetchedFile, LocalTree, StatRecord


@dataclass(frozen=True, slots=True)
class Upload:
    """One file to write; a changed object keeps its content type and user metadata."""

    path: str
    key: str
    record: StatRecord
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.record.size


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The uploads and deletes of staging, in memory."""

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

    def collect(self) -> SyncPlan:
        """Return the plan itself: it is in memory already."""
        return self


def suspects(tree: LocalTree, fetched: dict[str, FetchedFile], body_started_ns: int) -> list[str]:
    """Return the fetched files whose stat record does not prove that they are unchanged."""
    return [
        path
        for path, record in tree.files.items()
        if path in fetched
        and not is_proven_unchanged(record, fetched[path].record, body_started_ns)
    ]


def is_proven_unchanged(record: StatRecord, before: StatRecord, body_started_ns: int) -> bool:
    """Return whether the stat record alone proves that a file is as it was fetched."""
    return record == before and record.is_older_than(body_started_ns)


def build_sync_plan(
    *,
    projection: Projection,
    tree: LocalTree,
    prefix: str,
    is_changed: Callable[[str], bool],
) -> SyncPlan:
    """Compare the remote projection with the local tree.

    ``is_changed`` decides for files that are on both sides. Raises ``ProjectionError`` for local
    paths that cannot be published.
    """
    check_publishable(tree.files, tree.folders, prefix)
    start = listing_prefix(prefix)
    uploads: list[Upload] = []
    unchanged = 0
    for path, record in sorted(tree.files.items()):
        before = projection.files.get(path)
        if before is not None and not is_changed(path):
            unchanged += 1
        else:
            uploads.append(_upload(path, start + path, record, before))
    deletes = [item.key for path, item in projection.files.items() if path not in tree.files]
    deletes += [item.key for path, item in projection.markers.items() if path not in tree.folders]
    return SyncPlan(tuple(uploads), tuple(sorted(deletes)), unchanged)


def _upload(path: str, key: str, record: StatRecord, before: RemoteObject | None) -> Upload:
    if before is None:
        return Upload(path, key, record)
    return Upload(path, key, record, before.content_type, before.metadata)
