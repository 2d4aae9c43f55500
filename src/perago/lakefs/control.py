"""The control plane of LakeFS: commits, branches, merges, one bounded request each.

Reads and idempotent changes are retried during an outage. A commit, a merge, a relocation and the
creation of a branch are retried only if the request was not sent at all.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tenacity import Retrying

from perago.connections import LakeFSConnection
from perago.errors import BackendUnavailableError, ConflictError, NotFoundError
from perago.http_errors import nothing
from perago.lakefs import refs
from perago.lakefs.api import (
    CHANGES,
    COMMIT,
    COMMITS,
    CONFIG,
    MERGE,
    MERGE_BASE,
    REF,
    RUNS,
    STAT,
    USER,
    CommitMessage,
    LakeFSApi,
    at_path,
    parsed,
)
from perago.lakefs.fence import ACTION_PATH, LONGEST_ACTION, FenceState, fence_state
from perago.lakefs.refs import RefKind, branch_path, ref_path
from perago.names import ACTIONS_FOLDER, ENTRIES_PER_PAGE
from perago.protocol.record import REPEATED_COMMIT
from perago.protocol.workspace import BranchHead, Commit, StagedWorkspace, StagingBranch
from perago.retry import retrying

# Shorter than for objects: publish phases read while a lease runs.
_RETRY_SECONDS = 5.0
# Cleanup must leave time in the lease: one retry at most.
_CLEANUP_SECONDS = 10.0
_CLEANUP_RETRY_SECONDS = 1.0


class LakeFSControl:
    """Implements the protocol's ``Lake`` port."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._api = LakeFSApi(connection)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def check_access(self) -> None:
        """Raise ``BackendError`` if the server is unavailable or the credentials are wrong."""
        self._api.get("check the credentials", "/user", parsed(USER), retrier=retrying(0))

    def read_version(self) -> str:
        """Return the server's version, which not every user may read."""
        config = self._api.get("read its version", "/config", parsed(CONFIG), retrier=retrying(0))
        return config.version_config.version

    @property
    def clock_difference(self) -> float | None:
        """How many seconds the server's clock is ahead, by its last answer; None if unknown."""
        return self._api.clock_difference

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        commit = self._read_commit(repository, commit_id)
        if commit.id != commit_id:
            # LakeFS also takes abbreviations, tags and branch names here.
            raise NotFoundError(f"{commit_id} is not the full id of a commit in {repository!r}")
        return _as_commit(commit)

    def _read_commit(self, repository: str, ref: str) -> CommitMessage:
        return refs.read_commit(self._api, repository, ref, retrier=_retrier())

    def get_head(self, repository: str, branch: str) -> Commit:
        what = f"read branch {branch!r} of {repository!r}"
        path = branch_path(repository, branch)
        found = self._api.get(what, path, parsed(REF), retrier=_retrier())
        return self.get_commit(repository, found.commit_id)

    def log(self, repository: str, branch: str, amount: int) -> list[Commit]:
        """Read the last commits of a branch, newest first, by first parents; at most a page."""
        what = f"read the commits of branch {branch!r} of {repository!r}"
        # A branch by its own address: a name in the log's address may also be a tag or a commit.
        head = self._api.get(what, branch_path(repository, branch), parsed(REF), retrier=_retrier())
        return self.ancestry(repository, head.commit_id, amount)

    def ancestry(self, repository: str, commit_id: str, amount: int) -> list[Commit]:
        what = f"read the commits before {commit_id} of {repository!r}"
        path = f"{ref_path(repository, commit_id)}/commits"
        query = {"first_parent": "true", "limit": "true", "amount": min(amount, ENTRIES_PER_PAGE)}
        page = self._api.get(what, path, parsed(COMMITS), query, retrier=_retrier())
        if not page.results or page.results[0].id != commit_id:
            raise BackendUnavailableError(f"LakeFS could not {what}: it begins with another")
        return [_as_commit(commit) for commit in page.results]

    def is_on_branch(self, repository: str, branch: str, commit_id: str) -> bool:
        what = f"look for commit {commit_id} on branch {branch!r} of {repository!r}"
        # A branch by its own address: a name between refs may also be a tag or a commit.
        head = self._api.get(what, branch_path(repository, branch), parsed(REF), retrier=_retrier())
        path = at_path("repositories", repository, "refs", head.commit_id, "merge", commit_id)
        found = self._api.get(what, path, parsed(MERGE_BASE), retrier=_retrier())
        compared = {found.source_commit_id, found.destination_commit_id}
        if compared != {head.commit_id, commit_id}:
            raise BackendUnavailableError(f"LakeFS could not {what}: it compared other commits")
        return found.base_commit_id == commit_id

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        what = f"compare branch {branch!r} of {repository!r} with its HEAD"
        path = f"{branch_path(repository, branch)}/diff"
        return self._api.has_any(what, path, CHANGES, retrier=_retrier())

    def changes_actions(self, repository: str, commit: Commit) -> bool:
        if commit.first_parent is None:
            return False
        what = f"compare commit {commit.id} of {repository!r} with its parent"
        query = {"prefix": ACTIONS_FOLDER}
        return self._differ(what, repository, commit.first_parent, commit.id, query)

    def has_fence(self, repository: str, ref: str) -> bool:
        return self.read_fence(repository, ref).fences

    def read_fence(self, repository: str, ref: str) -> FenceState:
        """Read the fence's action file at ``ref``; return its state."""
        try:
            found = self._api.get(
                f"read {ACTION_PATH!r} at {ref} of {repository!r}",
                f"{ref_path(repository, ref)}/objects",
                bytes,
                {"path": ACTION_PATH},
                headers={"Range": f"bytes=0-{2 * LONGEST_ACTION}"},
                # A page would have 200, and must not pass for an edited fence.
                status=206,
                retrier=_retrier(),
            )
        except NotFoundError:
            # Raises if the repository or the ref does not exist.
            self._read_commit(repository, ref)
            return FenceState.MISSING
        return fence_state(found)

    def default_branch(self, repository: str) -> str:
        """Read the name of a repository's default branch."""
        return refs.read_default_branch(self._api, repository, retrier=_retrier())

    def write_small(self, staging: StagingBranch, path: str, content: bytes) -> None:
        """Write one small object on a staging branch; idempotent."""
        self._api.change(
            f"write {path!r} on {staging.branch!r}",
            "POST",
            f"{branch_path(staging.repository, staging.branch)}/objects",
            parsed(STAT),
            status=201,
            query={"path": path},
            body=content,
            headers={"Content-Type": "application/octet-stream"},
            retrier=_retrier(),
        )

    def has_action_runs(self, repository: str, branch: str) -> bool:
        """Return whether the server ran any hook for a branch."""
        what = f"list the action runs of {branch!r} of {repository!r}"
        path = f"{at_path('repositories', repository)}/actions/runs"
        return self._api.has_any(what, path, RUNS, {"branch": branch}, retrier=_retrier())

    def create_branch(self, staging: StagingBranch, source: str) -> None:
        refs.create_branch(self._api, staging.repository, staging.branch, source)

    def delete_branch(self, staging: StagingBranch) -> None:
        what = f"delete branch {staging.branch!r}"
        try:
            self._api.change(
                what,
                "DELETE",
                branch_path(staging.repository, staging.branch),
                nothing,
                status=204,
                seconds=_CLEANUP_SECONDS,
                retrier=retrying(_CLEANUP_RETRY_SECONDS),
            )
        except NotFoundError:
            retrier = retrying(_CLEANUP_RETRY_SECONDS)
            refs.assert_gone(
                self._api, what, staging.repository, "branches", staging.branch, retrier=retrier
            )

    def commit(
        self, staging: StagingBranch, message: str, metadata: dict[str, str]
    ) -> StagedWorkspace:
        made = self._api.change_once(
            f"commit branch {staging.branch!r}",
            "POST",
            f"{branch_path(staging.repository, staging.branch)}/commits",
            parsed(COMMIT),
            status=201,
            body={"message": message, "metadata": metadata},
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
        made = self._api.change_once(
            f"merge {staged.branch!r} into {target!r}",
            "POST",
            at_path("repositories", staged.repository, "refs", staged.branch, "merge", target),
            parsed(MERGE),
            status=200,
            body={"message": message, "metadata": metadata, "squash_merge": True},
            seconds=timeout,
        )
        return made.reference

    def revert(self, staging: StagingBranch, commit_id: str) -> None:
        """Take back on a branch, by a commit, what a commit changed against its first parent.

        Raises ``ConflictError`` where later commits changed the same objects.
        """
        self._api.change_once(
            f"revert {commit_id} on {staging.branch!r}",
            "POST",
            f"{branch_path(staging.repository, staging.branch)}/revert",
            nothing,
            status=204,
            body={"ref": commit_id, "parent_number": 1, "allow_empty": True},
        )

    def cherry_pick(self, staging: StagingBranch, commit_id: str) -> None:
        """Repeat on a branch, by a commit, what a commit changed against its first parent.

        Raises ``ConflictError`` where the branch has other objects in their place.
        """
        self._api.change_once(
            f"repeat {commit_id} on {staging.branch!r}",
            "POST",
            f"{branch_path(staging.repository, staging.branch)}/cherry-pick",
            parsed(COMMIT),
            status=201,
            # Without metadata of its own LakeFS 1.84 writes into that of the repeated commit, as
            # its cache has it, and the commit then reads as another one.
            body={
                "ref": commit_id,
                "parent_number": 1,
                "commit_overrides": {"metadata": {REPEATED_COMMIT: commit_id}},
            },
        )

    def relocate(self, licence: StagingBranch, target: str, *, timeout: float) -> None:
        self._api.change_once(
            f"relocate {target!r} to {licence.branch!r}",
            "PUT",
            f"{branch_path(licence.repository, target)}/hard_reset",
            nothing,
            status=204,
            query={"ref": licence.branch},
            seconds=timeout,
        )

    def list_branches(self, repository: str, prefix: str) -> list[BranchHead]:
        return self._listed(repository, "branches", prefix)

    def list_tags(self, repository: str, prefix: str) -> list[BranchHead]:
        return self._listed(repository, "tags", prefix)

    def _listed(self, repository: str, kind: RefKind, prefix: str) -> list[BranchHead]:
        listed = refs.list_refs(self._api, repository, kind, prefix, retrier=_retrier)
        return [BranchHead(item.id, item.commit_id) for item in listed]

    def is_same(self, repository: str, one: str, other: str) -> bool:
        what = f"compare {one} with {other} in {repository!r}"
        return not self._differ(what, repository, one, other, {"type": "two_dot"})

    def _differ(
        self, what: str, repository: str, one: str, other: str, query: dict[str, str]
    ) -> bool:
        path = at_path("repositories", repository, "refs", one, "diff", other)
        return self._api.has_any(what, path, CHANGES, query, retrier=_retrier())

    def tag(self, repository: str, tag: str, commit_id: str) -> None:
        try:
            refs.create_tag(self._api, repository, tag, commit_id, retrier=_retrier())
        except ConflictError:
            what, path = f"read tag {tag!r}", at_path("repositories", repository, "tags", tag)
            found = self._api.get(what, path, parsed(REF), retrier=_retrier())
            if found.commit_id != commit_id:
                raise


def _as_commit(commit: CommitMessage) -> Commit:
    return Commit(
        commit.id,
        tuple(commit.parents),
        commit.metadata or {},
        committer=commit.committer,
        message=commit.message,
        created=datetime.fromtimestamp(commit.creation_date, tz=UTC),
    )


def _retrier() -> Retrying:
    return retrying(_RETRY_SECONDS)
