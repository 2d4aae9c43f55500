"""The control plane of LakeFS: commits, branches, merges, one bounded request each.

Reads and idempotent changes are retried during an outage; a commit, a merge, a relocation and the
creation of a branch are never retried.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient

from perago.connections import LakeFSConnection
from perago.errors import ConflictError, NotFoundError
from perago.lakefs.errors import translated
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT, FenceState, fence_state
from perago.protocol.names import ACTIONS_FOLDER
from perago.protocol.workspace import BranchHead, Commit, StagedWorkspace, StagingBranch
from perago.retry import retrying

# Shorter than for objects: publish steps read while a lease runs.
_RETRY_SECONDS = 5.0
# Cleanup must leave time in the lease: one retry at most.
_CLEANUP_TIMEOUT = (2.0, 10.0)
_CLEANUP_RETRY_SECONDS = 1.0
_PAGE = 1000


def connect(connection: LakeFSConnection) -> LakeFSClient:
    """Build the SDK's client, without its own retries, which would also repeat writes."""
    configuration = lakefs_sdk.Configuration(
        host=connection.api,
        username=connection.access_key_id,
        password=connection.secret_access_key.get_secret_value(),
        ssl_ca_cert=str(connection.authorities.file) if connection.authorities else None,
    )
    configuration.retries = False
    return LakeFSClient(configuration)


class LakeFSControl:
    """Implements the protocol's ``Lake`` port."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._client = connect(connection)
        self._timeout = (connection.connect_timeout, connection.read_timeout)

    def close(self) -> None:
        """Close the connections."""
        self._client._api.rest_client.pool_manager.clear()

    def check_access(self) -> None:
        """Raise ``BackendError`` if the server is unavailable or the credentials are wrong."""
        get = self._client.auth_api.get_current_user
        self._retried("check the credentials", get, retry_seconds=0)

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        what = f"read commit {commit_id} of {repository!r}"
        commit = self._retried(what, self._client.commits_api.get_commit, repository, commit_id)
        if commit.id != commit_id:
            # LakeFS also takes abbreviations, tags and branch names here.
            raise NotFoundError(f"{commit_id} is not the full id of a commit in {repository!r}")
        return Commit(
            commit.id,
            tuple(commit.parents),
            dict(commit.metadata or {}),
            committer=str(commit.committer or ""),
            message=str(commit.message or ""),
            created=datetime.fromtimestamp(commit.creation_date, tz=UTC),
        )

    def get_head(self, repository: str, branch: str) -> Commit:
        what = f"read branch {branch!r} of {repository!r}"
        found = self._retried(what, self._client.branches_api.get_branch, repository, branch)
        return self.get_commit(repository, found.commit_id)

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        what = f"compare branch {branch!r} of {repository!r} with its HEAD"
        diff = self._client.branches_api.diff_branch
        return bool(self._retried(what, diff, repository, branch, amount=1).results)

    def changes_actions(self, repository: str, commit: Commit) -> bool:
        if commit.first_parent is None:
            return False
        what = f"compare commit {commit.id} of {repository!r} with its parent"
        diff = self._client.refs_api.diff_refs
        found = self._retried(
            what, diff, repository, commit.first_parent, commit.id, prefix=ACTIONS_FOLDER, amount=1
        )
        return bool(found.results)

    def has_fence(self, repository: str, ref: str) -> bool:
        return self.read_fence(repository, ref) is FenceState.INSTALLED

    def read_fence(self, repository: str, ref: str) -> FenceState:
        """Read the fence's action file at ``ref``; return its state."""
        what = f"read {ACTION_PATH!r} at {ref} of {repository!r}"
        get, start = self._client.objects_api.get_object, f"bytes=0-{2 * len(ACTION_TEXT)}"
        try:
            found = self._retried(what, get, repository, ref, ACTION_PATH, range=start)
        except NotFoundError:
            return self._without_fence(repository, ref)
        return fence_state(bytes(found))

    def _without_fence(self, repository: str, ref: str) -> FenceState:
        """Return MISSING; raises ``NotFoundError`` if the repository or the ref does not exist."""
        what = f"read {ref!r} of {repository!r}"
        self._retried(what, self._client.commits_api.get_commit, repository, ref)
        return FenceState.MISSING

    def default_branch(self, repository: str) -> str:
        """Read the name of a repository's default branch."""
        get = self._client.repositories_api.get_repository
        return str(self._retried(f"read repository {repository!r}", get, repository).default_branch)

    def write_small(self, staging: StagingBranch, path: str, content: bytes) -> None:
        """Write one small object on a staging branch; idempotent."""
        upload = self._client.objects_api.upload_object
        what = f"write {path!r} on {staging.branch!r}"
        self._retried(what, upload, staging.repository, staging.branch, path, content=content)

    def has_action_runs(self, repository: str, branch: str) -> bool:
        """Return whether the server ran any hook for a branch."""
        runs = self._client.actions_api.list_repository_runs
        what = f"list the action runs of {branch!r} of {repository!r}"
        return bool(self._retried(what, runs, repository, branch=branch, amount=1).results)

    def create_branch(self, staging: StagingBranch, source: str) -> None:
        creation = lakefs_sdk.BranchCreation(name=staging.branch, source=source)
        with translated(f"create branch {staging.branch!r}", changes=True):
            self._client.branches_api.create_branch(
                staging.repository, creation, _request_timeout=self._timeout
            )

    def delete_branch(self, staging: StagingBranch) -> None:
        try:
            self._retried(
                f"delete branch {staging.branch!r}",
                self._client.branches_api.delete_branch,
                staging.repository,
                staging.branch,
                _request_timeout=_CLEANUP_TIMEOUT,
                retry_seconds=_CLEANUP_RETRY_SECONDS,
            )
        except NotFoundError:
            return

    def commit(
        self, staging: StagingBranch, message: str, metadata: dict[str, str]
    ) -> StagedWorkspace:
        creation = lakefs_sdk.CommitCreation(message=message, metadata=metadata)
        with translated(f"commit branch {staging.branch!r}", changes=True):
            made = self._client.commits_api.commit(
                staging.repository, staging.branch, creation, _request_timeout=self._timeout
            )
        return StagedWorkspace(staging.repository, staging.branch, made.id)

    def merge(
        self,
        staged: StagedWorkspace,
        target: str,
        *,
        message: str,
        metadata: dict[str, str],
        timeout: float,
    ) -> str:
        merge = lakefs_sdk.Merge(message=message, metadata=metadata, squash_merge=True)
        with translated(f"merge {staged.branch!r} into {target!r}", changes=True):
            result = self._client.refs_api.merge_into_branch(
                staged.repository, staged.branch, target, merge=merge, _request_timeout=timeout
            )
        return str(result.reference)

    def relocate(self, licence: StagingBranch, target: str, *, timeout: float) -> None:
        with translated(f"relocate {target!r} to {licence.branch!r}", changes=True):
            self._client.experimental_api.hard_reset_branch(
                licence.repository, target, licence.branch, _request_timeout=timeout
            )

    def list_branches(self, repository: str, prefix: str) -> list[BranchHead]:
        what = f"list branches of {repository!r}"
        return self._listed(what, self._client.branches_api.list_branches, repository, prefix)

    def list_tags(self, repository: str, prefix: str) -> list[BranchHead]:
        what = f"list tags of {repository!r}"
        return self._listed(what, self._client.tags_api.list_tags, repository, prefix)

    def _listed(self, what: str, call: Any, repository: str, prefix: str) -> list[BranchHead]:
        found, after = list[BranchHead](), ""
        while True:
            page = self._retried(what, call, repository, prefix=prefix, after=after, amount=_PAGE)
            found += [BranchHead(str(item.id), str(item.commit_id)) for item in page.results]
            if not page.pagination.has_more:
                return found
            after = page.pagination.next_offset

    def is_same(self, repository: str, one: str, other: str) -> bool:
        diff = self._client.refs_api.diff_refs
        what = f"compare {one} with {other} in {repository!r}"
        found = self._retried(what, diff, repository, one, other, type="two_dot", amount=1)
        return not found.results

    def tag(self, repository: str, tag: str, commit_id: str) -> None:
        creation = lakefs_sdk.TagCreation(id=tag, ref=commit_id)
        create = self._client.tags_api.create_tag
        try:
            self._retried(f"create tag {tag!r}", create, repository, creation)
        except ConflictError:
            get = self._client.tags_api.get_tag
            if self._retried(f"read tag {tag!r}", get, repository, tag).commit_id != commit_id:
                raise

    def _retried(
        self,
        what: str,
        call: Any,
        *args: Any,
        retry_seconds: float = _RETRY_SECONDS,
        **kwargs: Any,
    ) -> Any:
        """Send a request that reads or is idempotent, with retries."""
        kwargs.setdefault("_request_timeout", self._timeout)

        def send() -> Any:
            with translated(what):
                return call(*args, **kwargs)

        return retrying(retry_seconds)(send)
