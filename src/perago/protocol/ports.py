"""What the protocol needs from the outside, as narrow as it can be.

Every call is bounded in time by its adapter and raises errors of :mod:`perago.errors` only.
A call that changes something raises ``LostReplyError`` when it may or may not have been done, and
any other ``BackendError`` only when it certainly was not. Adapters never repeat a commit, a merge
or a relocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from perago.protocol.identity import Claim, Execution
from perago.protocol.workspace import (
    BranchHead,
    Commit,
    NamedInput,
    StagedWorkspace,
    StagingBranch,
    WorkspaceInput,
)


class Lake(Protocol):
    """The control plane of LakeFS."""

    def get_commit(self, repository: str, commit_id: str) -> Commit: ...
    def get_head(self, repository: str, branch: str) -> Commit: ...
    def ancestry(self, repository: str, commit_id: str, amount: int) -> Sequence[Commit]:
        """A commit and those before it by first parents, newest first; at most ``amount``."""
        ...

    def is_on_branch(self, repository: str, branch: str, commit_id: str) -> bool:
        """Whether a commit is the HEAD of a branch or an ancestor of it, by any parents.

        Raises ``NotFoundError`` when the branch or the commit is not there.
        """
        ...

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool: ...
    def changes_actions(self, repository: str, commit: Commit) -> bool:
        """Whether a commit changes ``_lakefs_actions/`` against its first parent."""
        ...

    def has_fence(self, repository: str, ref: str) -> bool:
        """Whether the hard fence's action file is in the tree of ``ref``."""
        ...

    def create_branch(self, staging: StagingBranch, source: str) -> None: ...
    def delete_branch(self, staging: StagingBranch) -> None:
        """Delete; a branch that is not there is fine."""
        ...

    def commit(
        self, staging: StagingBranch, message: str, metadata: dict[str, str]
    ) -> StagedWorkspace: ...

    def merge(
        self,
        staged: StagedWorkspace,
        target: str,
        *,
        message: str,
        metadata: dict[str, str],
        timeout: float,
    ) -> str:
        """Squash-merge the staging *branch*, which is the licence; the id of the new commit.

        Raises ``NotFoundError`` when the licence (or the target) is not there.
        """
        ...

    def relocate(self, licence: StagingBranch, target: str, *, timeout: float) -> None:
        """Move the target to the HEAD of the staging branch, which is the licence."""
        ...

    def list_branches(self, repository: str, prefix: str) -> Sequence[BranchHead]:
        """Every branch whose name begins with ``prefix``."""
        ...

    def list_tags(self, repository: str, prefix: str) -> Sequence[BranchHead]:
        """Every tag whose name begins with ``prefix``."""
        ...

    def is_same(self, repository: str, one: str, other: str) -> bool:
        """Whether two commits hold the same objects."""
        ...

    def tag(self, repository: str, tag: str, commit_id: str) -> None:
        """Create a tag; one that is already on the same commit is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A polled task: our claim on it, and its input."""

    claim: Claim
    task_type: str
    payload: dict[str, Any]
    response_timeout_seconds: float
    # When it was asked for, on the monotonic clock: the claim is not older.
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptSnapshot:
    """A fresh read of a Conductor task."""

    status: str
    workflow_instance_id: str
    task_id: str
    retry_count: int
    worker_id: str | None
    response_timeout_seconds: float = 0.0
    retried_task_id: str | None = None
    # Why the attempt did not complete, as the worker, Conductor or a person wrote it.
    reason: str | None = None


class Attempts(Protocol):
    """What Conductor knows about attempts."""

    def read(self, task_id: str) -> AttemptSnapshot: ...
    def renew(self, claim: Claim) -> None:
        """Extend the lease of a claim that was just read and found ours."""
        ...

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        """Whether a running workflow ended once and was retried or rerun by an operator."""
        ...


class Changes(Protocol):
    """What a body did to the projection; falsy when it did nothing."""

    def __bool__(self) -> bool: ...
    def summary(self) -> dict[str, int]: ...


class AttemptDirectory(Protocol):
    """One execution's folder and the projection in it."""

    @property
    def data(self) -> Path: ...
    def fetch(self, workspace: WorkspaceInput, prefix: str) -> dict[str, int]:
        """Download the projection at the input ref; counts of what came."""
        ...

    def fetch_input(self, name: str, given: NamedInput) -> tuple[Path, dict[str, int]]:
        """Download a read-only input beside the data folder; its folder, and counts."""
        ...

    def changes(self) -> Changes:
        """Compare the data folder with what was fetched."""
        ...

    def stage(self, changes: Changes, staging: StagingBranch) -> dict[str, int]:
        """Delete and upload on the staging branch; counts beside those of the changes."""
        ...


class Workspaces(Protocol):
    """Makes attempt directories; leaving the context removes one, and never raises for that."""

    def open(self, execution: Execution) -> AbstractContextManager[AttemptDirectory]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """One key of a LakeFS diff; the size is that of the new object."""

    key: str
    kind: Literal["added", "changed", "removed"]
    size: int = 0


class Objects(Protocol):
    """The objects of a repository, where no folder stands in for them."""

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        """What a branch holds beyond its HEAD, in key order."""
        ...

    def changes(
        self, repository: str, base: str, commit: str, prefix: str = ""
    ) -> Iterator[Change]:
        """How one commit differs from another, in key order; of keys that begin with ``prefix``."""
        ...

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        """Delete objects; at most ``DELETES_PER_REQUEST`` keys. A key that is not there is fine."""
        ...


class LastSeen(Protocol):
    """What a task saw of its workspace when it last published."""

    def changes(self, ref: str, since: str | None = None) -> tuple[str, Sequence[Change]] | None:
        """Compare ``ref`` with what was seen; the commit it was seen at, and the differences.

        ``since`` is a ref to compare with in its place. None where nothing was seen so far.
        """
        ...


class SparkExecution(Protocol):
    """One execution on Spark: its workspaces and its operations."""

    def workspace(self, ref: str, staging: StagingBranch | None = None) -> Any:
        """Build what the author's code gets: it reads at ``ref`` and writes to ``staging``."""
        ...

    def end_operations(self) -> int:
        """Interrupt every operation, wait until all have ended, and return how many there were.

        Raises ``BackendError`` when an operation may still run; ``SparkServerDiedError`` at once
        when the server is gone.
        """
        ...

    def failed_writes(self) -> Sequence[str]:
        """Return the paths where a write failed and no later one made that good.

        A streaming query that failed counts as a write, too.
        """
        ...


class SparkExecutions(Protocol):
    """Opens executions on Spark; leaving the context ends the operations and never raises."""

    def open(
        self,
        execution: Execution,
        workspace: WorkspaceInput,
        prefix: str,
        inputs: Mapping[str, NamedInput],
        last_seen: LastSeen,
    ) -> AbstractContextManager[SparkExecution]: ...
    def end(self, execution_id: str) -> None:
        """End the session of another execution and what runs in it; never raises."""
        ...


class Clock(Protocol):
    """Time, so that a simulation can own it."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
    def today(self) -> str:
        """The UTC date as YYYYMMDD."""
        ...
