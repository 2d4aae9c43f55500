"""List and delete the staging branches and tags that executions left in LakeFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from perago.connections import LakeFSConnection
from perago.errors import ConflictError, NotFoundError
from perago.http_errors import nothing
from perago.lakefs import refs
from perago.lakefs.api import REF, LakeFSApi, RefMessage, at_path, parsed
from perago.lakefs.refs import RefKind
from perago.names import STAGING_PREFIX
from perago.protocol.garbage import TAG_PREFIXES, FoundBranch, FoundTag
from perago.protocol.workspace import Commit
from perago.retry import retrying_times

Removal = Literal["deleted", "gone", "moved"]


class LakeFSGarbage:
    """Finds and deletes staging branches, and tags of replaced commits."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._api = LakeFSApi(connection)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def repositories(self) -> list[str]:
        """List every repository that the user can see."""
        return refs.list_repositories(self._api, retrier=retrying_times)

    def branches(self, repository: str) -> Iterator[FoundBranch]:
        """List the branches that are named like staging branches, with their HEADs."""
        for item in self._refs(repository, "branches", STAGING_PREFIX):
            try:
                yield self._found(repository, item.id, item.commit_id)
            except NotFoundError:  # deleted since it was listed
                continue

    def _found(self, repository: str, name: str, commit_id: str) -> FoundBranch:
        commit = refs.read_commit(self._api, repository, commit_id, retrier=retrying_times())
        head = Commit(commit.id, tuple(commit.parents), commit.metadata or {})
        committed = datetime.fromtimestamp(commit.creation_date, tz=UTC)
        return FoundBranch(repository, name, head, committed)

    def tags(self, repository: str) -> Iterator[FoundTag]:
        """List the tags that are named like tags of replaced and withdrawn commits."""
        for prefix in TAG_PREFIXES:
            for item in self._refs(repository, "tags", prefix):
                yield FoundTag(repository, item.id, item.commit_id)

    def _refs(self, repository: str, kind: RefKind, prefix: str) -> Iterator[RefMessage]:
        return refs.list_refs(self._api, repository, kind, prefix, retrier=retrying_times)

    def delete_branch(self, repository: str, name: str, commit: str) -> Removal:
        """Delete a branch if it is still at ``commit``; return what became of it."""
        return self._delete(repository, "branches", name, commit)

    def create_tag(self, repository: str, name: str, commit: str) -> None:
        """Create a tag; one that is there already is fine."""
        with suppress(ConflictError):
            refs.create_tag(self._api, repository, name, commit, retrier=retrying_times())

    def delete_tag(self, repository: str, name: str, commit: str) -> Removal:
        """Delete a tag if it is still on ``commit``; return what became of it."""
        return self._delete(repository, "tags", name, commit)

    def _delete(self, repository: str, kind: RefKind, name: str, commit: str) -> Removal:
        what = f"{'branch' if kind == 'branches' else 'tag'} {name!r} of {repository!r}"
        path = at_path("repositories", repository, kind, name)
        try:
            found = self._api.get(f"read {what}", path, parsed(REF), retrier=retrying_times())
            if found.commit_id != commit:
                return "moved"
            self._api.change(
                f"delete {what}", "DELETE", path, nothing, status=204, retrier=retrying_times()
            )
        except NotFoundError:
            refs.assert_gone(
                self._api, f"delete {what}", repository, kind, name, retrier=retrying_times()
            )
            return "gone"
        return "deleted"
