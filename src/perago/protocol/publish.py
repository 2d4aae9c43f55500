"""Publish: move the target branch by one commit, or explain why not.

LakeFS has no compare-and-swap on a merge, so everything here is check, act once, read back. With
the hard fence installed the server checks ``perago.expected_head`` inside its branch update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendRefusedError,
    LostReplyError,
    MixedPublicationError,
    PublishFenceError,
    UnknownOutcomeError,
)
from perago.protocol.events import Phases
from perago.protocol.fences import (
    AttemptFence,
    CompleteAtInput,
    Lease,
    MergeStaged,
    ReplaceAbandoned,
    ReturnToInput,
    build_workspace_publication_plan,
)
from perago.protocol.identity import Execution
from perago.protocol.job import Policy
from perago.protocol.names import ACTIONS_FOLDER, REPLACED_PREFIX
from perago.protocol.ports import Clock, Lake
from perago.protocol.record import EXPECTED_HEAD, Record, read_record
from perago.protocol.workspace import Commit, StagedWorkspace, WorkspaceInput

_RELOCATE_TIMEOUT_SECONDS = 30.0
_READ_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Published:
    """Where the workspace is now, and how it got there."""

    ref: str
    how: Literal["unchanged", "merged", "replaced", "returned"]
    abandoned: str | None = None


@dataclass(frozen=True, slots=True)
class Publisher:
    """Walks the publish fence once for one execution."""

    lake: Lake
    clock: Clock
    policy: Policy
    phases: Phases
    fence: AttemptFence
    execution: Execution
    workspace: WorkspaceInput
    merge_timeout: float
    message: str

    def publish(self, staged: StagedWorkspace | None, record: Record, lease: Lease) -> Published:
        """Publish a staged commit, or (``None``) make sure that an unchanged target is at ref."""
        space = self.workspace
        head = self.lake.get_head(space.repository, space.branch)
        plan = build_workspace_publication_plan(
            ref=space.ref, head=head, changed=staged is not None, branch=space.branch
        )
        self.phases.report("publish_planned", plan=type(plan).__name__, head=head.id)
        match plan, staged:
            case CompleteAtInput(), _:
                return Published(space.ref, "unchanged")
            case MergeStaged(), StagedWorkspace():
                return self._merge(staged, record, lease)
            case ReplaceAbandoned(abandoned=abandoned), StagedWorkspace():
                self._relocate(abandoned, staged.commit)
                return Published(staged.commit, "replaced", abandoned.id)
            case ReturnToInput(abandoned=abandoned), _:
                self._relocate(abandoned, space.ref)
                return Published(space.ref, "returned", abandoned.id)
            case _:  # pragma: no cover - the plan and the staged commit come from one diff
                raise AssertionError(plan)

    def _merge(self, staged: StagedWorkspace, record: Record, lease: Lease) -> Published:
        space = self.workspace
        self._refuse_dirty_target()
        metadata = {
            **record.metadata(),
            EXPECTED_HEAD: space.ref,
            "perago.staging_commit": staged.commit,
        }
        timeout = lease.bound(self.merge_timeout, "merge")
        try:
            merged = self.lake.merge(
                staged,
                space.branch,
                message=self.message,
                metadata=metadata,
                timeout=timeout,
            )
        except LostReplyError as lost:
            merged = self._resolve(lost, self._is_our_merge)
        except BackendRefusedError as refused:
            # A conflict or a failed hook (the hard fence): HEAD moved under us.
            raise PublishFenceError(f"LakeFS refused the merge: {refused}") from refused
        return self._read_back(merged)

    def _read_back(self, merged: str) -> Published:
        """A merge that raced another one lands on top of it; only reading shows that."""
        space = self.workspace
        with _kept_if_unreadable(f"commit {merged} was published on {space.branch!r}"):
            published = self.lake.get_commit(space.repository, merged)
        if published.first_parent != space.ref:
            raise MixedPublicationError(
                f"commit {merged} on {space.branch!r} was published on top of "
                f"{published.first_parent}, not of the input {space.ref}"
            )
        return Published(merged, "merged")

    def _relocate(self, abandoned: Commit, destination: str) -> None:
        """Relocation is unconditional in LakeFS, hence the care before and after it."""
        space = self.workspace
        self._refuse_unexplained(abandoned)
        self._refuse_dirty_target()
        tag = f"{REPLACED_PREFIX}{self.clock.today()}-{abandoned.id}"
        self.lake.tag(space.repository, tag, abandoned.id)
        self.phases.report("replaced_commit_tagged", tag=tag, commit=abandoned.id)
        timeout = self.fence.check().bound(_RELOCATE_TIMEOUT_SECONDS, "relocate the target")
        try:
            self.lake.relocate(space.repository, space.branch, destination, timeout=timeout)
        except LostReplyError as lost:
            self._resolve(lost, lambda head: head.id == destination)
        except BackendDeniedError as denied:
            raise PublishFenceError(
                f"LakeFS refuses to relocate {space.branch!r}: {denied}",
                hint="A protected branch takes merges but no relocation. Start a new workflow "
                "from its current HEAD, or move the branch back by hand.",
            ) from denied
        except BackendRefusedError as refused:
            raise PublishFenceError(f"LakeFS refused the relocation: {refused}") from refused
        with _kept_if_unreadable(f"{space.branch!r} was relocated to {destination}"):
            head = self.lake.get_head(space.repository, space.branch)
        if head.id != destination:
            raise MixedPublicationError(
                f"{space.branch!r} was relocated to {destination} and is at {head.id}"
            )
        if space.ref not in (head.id, head.first_parent):
            raise MixedPublicationError(
                f"commit {head.id} on {space.branch!r} does not sit on the input {space.ref}"
            )

    def _refuse_unexplained(self, abandoned: Commit) -> None:
        """Metadata may veto a relocation, never permit one (unless strictness is asked for)."""
        attempt = self.execution.attempt
        record = read_record(abandoned)
        if self.policy.replacement == "off":
            raise PublishFenceError(f"the target moved to {abandoned.id} and replacement is off")
        if record and record.is_of_later_attempt_than(attempt):
            raise PublishFenceError(f"HEAD {abandoned.id} was published by a later attempt")
        ours = record is not None and record.logical == attempt.logical
        if self.policy.replacement == "provenance" and not ours:
            raise PublishFenceError(
                f"HEAD {abandoned.id} carries no record of this task, and "
                "PERAGO_REPLACEMENT=provenance replaces only what does"
            )
        if self.lake.changes_actions(self.workspace.repository, abandoned):
            raise PublishFenceError(f"HEAD {abandoned.id} changes {ACTIONS_FOLDER}")

    def _refuse_dirty_target(self) -> None:
        space = self.workspace
        if self.lake.has_uncommitted_changes(space.repository, space.branch):
            raise PublishFenceError(
                f"target branch {space.branch!r} has uncommitted changes",
                hint="Commit or reset them; nothing may write to a target branch directly.",
            )

    def _is_our_merge(self, head: Commit) -> bool:
        record = read_record(head)
        return record is not None and record.execution_id == self.execution.id

    def _resolve(self, lost: LostReplyError, landed: Callable[[Commit], bool]) -> str:
        """After a lost reply, read until the change shows up; never ask for it again."""
        space = self.workspace
        self.phases.report("reply_lost", error=str(lost))
        deadline = self.clock.monotonic() + self.policy.resolve_seconds
        while True:
            try:
                head = self.lake.get_head(space.repository, space.branch)
            except BackendError:
                head = None
            if head is not None and landed(head):
                self.phases.report("resolved_as_landed", head=head.id)
                return head.id
            if self.clock.monotonic() >= deadline:
                at = head.id if head else "unreadable"
                raise UnknownOutcomeError(
                    f"the reply was lost and HEAD of {space.branch!r} is {at}: {lost}"
                ) from lost
            self.clock.sleep(_READ_AGAIN_SECONDS)


@contextmanager
def _kept_if_unreadable(what: str) -> Iterator[None]:
    """Something was published; if it cannot be read back, its evidence must stay."""
    try:
        yield
    except BackendError as error:
        raise UnknownOutcomeError(f"{what} and could not be read back: {error}") from error
