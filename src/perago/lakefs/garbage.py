"""List and delete the staging branches and tags that executions left in LakeFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from lakefs_sdk import TagCreation

from perago.connections import LakeFSConnection
from perago.errors import ConflictError, NotFoundError
from perago.lakefs.control import connect
from perago.lakefs.errors import translated
from perago.protocol.garbage import TAG_PREFIXES, FoundBranch, FoundTag
from perago.protocol.names import STAGING_PREFIX
from perago.protocol.workspace import Commit
from perago.retry import retrying_times

_PAGE = 1000

Removal = Literal["deleted", "gone", "moved"]


class LakeFSGarbage:
    """Finds and deletes staging branches, and tags of replaced commits."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._client = connect(connection)
        self._timeout = (connection.connect_timeout, connection.read_timeout)

    def close(self) -> None:
        """Close the connections."""
        self._client._api.rest_client.pool_manager.clear()

    def repositories(self) -> list[str]:
        """List every repository that the user can see."""
        listing = self._pages("list repositories", self._client.repositories_api.list_repositories)
        return [str(item.id) for item in listing]

    def branches(self, repository: str) -> Iterator[FoundBranch]:
        """List the branches that are named like staging branches, with their HEADs."""
        what = f"list branches of {repository!r}"
        call = self._client.branches_api.list_branches
        for item in self._pages(what, call, repository, prefix=STAGING_PREFIX):
            try:
                yield self._found(repository, item.id, item.commit_id)
            except NotFoundError:  # deleted since it was listed
                continue

    def _found(self, repository: str, name: str, commit_id: str) -> FoundBranch:
        get = self._client.commits_api.get_commit
        commit = self._request(
            f"read commit {commit_id} of {repository!r}", get, repository, commit_id
        )
        head = Commit(commit.id, tuple(commit.parents), dict(commit.metadata or {}))
        committed = datetime.fromtimestamp(commit.creation_date, tz=UTC)
        return FoundBranch(repository, str(name), head, committed)

    def tags(self, repository: str) -> Iterator[FoundTag]:
        """List the tags that are named like tags of replaced and withdrawn commits."""
        call = self._client.tags_api.list_tags
        what = f"list tags of {repository!r}"
        for prefix in TAG_PREFIXES:
            for item in self._pages(what, call, repository, prefix=prefix):
                yield FoundTag(repository, str(item.id), str(item.commit_id))

    def delete_branch(self, repository: str, name: str, commit: str) -> Removal:
        """Delete a branch if it is still at ``commit``; return what became of it."""
        api = self._client.branches_api
        return self._delete(
            f"branch {name!r} of {repository!r}",
            api.get_branch,
            api.delete_branch,
            (repository, name),
            commit,
        )

    def create_tag(self, repository: str, name: str, commit: str) -> None:
        """Create a tag; one that is there already is fine."""
        creation = TagCreation(id=name, ref=commit)
        with suppress(ConflictError):
            self._request(
                f"create tag {name!r} of {repository!r}",
                self._client.tags_api.create_tag,
                repository,
                creation,
            )

    def delete_tag(self, repository: str, name: str, commit: str) -> Removal:
        """Delete a tag if it is still on ``commit``; return what became of it."""
        api = self._client.tags_api
        return self._delete(
            f"tag {name!r} of {repository!r}",
            api.get_tag,
            api.delete_tag,
            (repository, name),
            commit,
        )

    def _delete(
        self, what: str, get: Any, delete: Any, name: tuple[str, str], commit: str
    ) -> Removal:
        try:
            if self._request(f"read {what}", get, *name).commit_id != commit:
                return "moved"
            self._request(f"delete {what}", delete, *name)
        except NotFoundError:
            return "gone"
        return "deleted"

    def _pages(self, what: str, call: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        after = ""
        while True:
            page = self._request(what, call, *args, after=after, amount=_PAGE, **kwargs)
            yield from page.results
            if not page.pagination.has_more:
                return
            after = page.pagination.next_offset

    def _request(self, what: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Send one request, with retries: all of them read or are idempotent."""

        def send() -> Any:
            with translated(what):
                return call(*args, _request_timeout=self._timeout, **kwargs)

        return retrying_times()(send)
