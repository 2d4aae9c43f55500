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
    NotFoundError,
    NotPublishedError,
    PeragoError,
    PublishFenceError,
    StaleAttemptError,
    UnknownOutcomeError,
)
from perago.names import ACTIONS_FOLDER, REPLACED_PREFIX
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
from perago.protocol.garbage import RETENTION
from perago.protocol.identity import Execution
from perago.protocol.job import RELOCATE_TIMEOUT_SECONDS, Policy
from perago.protocol.licences import Licence, Licences
from perago.protocol.ports import Clock, Lake
from perago.protocol.provenance import assert_replaceable
from perago.protocol.record import EXPECTED_HEAD, STAGING_COMMIT, Record, read_record
from perago.protocol.workspace import Commit, StagedWorkspace, WorkspaceInput

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
    licences: Licences
    execution: Execution
    workspace: WorkspaceInput
    merge_timeout: float
    landing_seconds: float

    def publish(
        self, licence: Licence, staged: StagedWorkspace | None, record: Record, lease: Lease
    ) -> Published:
        """Publish a staged commit, or (``None``) make sure that an unchanged target is at ref."""
        space = self.workspace
        self.licences.withdraw_others(space.repository)
        if self.licences.await_landing():
            # Time has passed since the last fence: look again, and renew the lease.
            lease = self.fence.check()
        head = self.lake.get_head(space.repository, space.branch)
        plan = build_workspace_publication_plan(
            ref=space.ref, head=head, changed=staged is not None, branch=space.branch
        )
        self.phases.report("publish_planned", plan=type(plan).__name__, head=head.id)
        match plan, staged:
            case CompleteAtInput(), _:
                return Published(space.ref, "unchanged")
            case MergeStaged(), StagedWorkspace():
                return self._merge(licence, staged, record, lease)
            case ReplaceAbandoned(abandoned=abandoned), StagedWorkspace():
                self._relocate(licence, abandoned, staged.commit)
                return Published(staged.commit, "replaced", abandoned.id)
            case ReturnToInput(abandoned=abandoned), _:
                self._relocate(licence, abandoned, space.ref)
                return Published(space.ref, "returned", abandoned.id)
            case _:  # pragma: no cover - the plan and the staged commit come from one diff
                raise AssertionError(plan)

    def _merge(
        self, licence: Licence, staged: StagedWorkspace, record: Record, lease: Lease
    ) -> Published:
        space = self.workspace
        self._refuse_dirty_target()
        metadata = {
            **record.metadata(),
            EXPECTED_HEAD: space.ref,
            STAGING_COMMIT: staged.commit,
        }
        timeout = lease.bound(self.merge_timeout, "merge")
        try:
            merged = self.lake.merge(
                staged,
                space.branch,
                message=record.message,
                metadata=metadata,
                timeout=timeout,
            )
        except LostReplyError as lost:
            merged = self._resolve(
                lost, licence, staged.commit, before=space.ref, landed=self._is_our_merge
            )
        except NotFoundError as missing:
            raise self._explain_missing(licence, missing) from missing
        except BackendRefusedError as refused:
            # A conflict or a failed hook (the hard fence): HEAD moved under us.
            raise PublishFenceError(f"LakeFS refused the merge: {refused}") from refused
        self._read_back(merged, staged)
        return Published(merged, "merged")

    def _read_back(self, merged: str, staged: StagedWorkspace) -> None:
        """A merge that raced another one lands on top of it; only reading shows that."""
        space = self.workspace
        with _kept_if_unreadable(f"commit {merged} was published on {space.branch!r}"):
            published = self.lake.get_commit(space.repository, merged)
            same = self.lake.is_same(space.repository, merged, staged.commit)
        if published.first_parent != space.ref:
            raise MixedPublicationError(
                f"commit {merged} on {space.branch!r} was published on top of "
                f"{published.first_parent}, not of the input {space.ref}"
            )
        if not same:
            raise MixedPublicationError(
                f"commit {merged} on {space.branch!r} differs from the staged commit "
                f"{staged.commit}: another writer knew the staging branch"
            )

    def _relocate(self, licence: Licence, abandoned: Commit, destination: str) -> None:
        """Relocation is unconditional in LakeFS, hence the care before and after it."""
        space = self.workspace
        self._refuse_unexplained(abandoned)
        self._refuse_dirty_target()
        tag = f"{REPLACED_PREFIX}{self.clock.today()}-{abandoned.id}"
        self.lake.tag(space.repository, tag, abandoned.id)
        # A licence is made before the last attempt fence, never after it: one made later, by an
        # execution that was frozen in between, would have escaped its withdrawal.
        licence.ensure()
        timeout = self.fence.check().bound(RELOCATE_TIMEOUT_SECONDS, "relocate the target")
        head = self.lake.get_head(space.repository, space.branch)
        if head.id != abandoned.id:
            raise PublishFenceError(
                f"{space.branch!r} moved from {abandoned.id} to {head.id} before its relocation"
            )
        try:
            self.lake.relocate(licence.branch, space.branch, timeout=timeout)
        except LostReplyError as lost:
            self._resolve(
                lost,
                licence,
                destination,
                before=abandoned.id,
                landed=lambda head: head.id == destination,
            )
        except BackendDeniedError as denied:
            raise PublishFenceError(
                f"LakeFS refuses to relocate {space.branch!r}: {denied}",
                hint="A protected branch takes merges but no relocation. Start a new workflow "
                "from its current HEAD, or move the branch back by hand.",
            ) from denied
        except NotFoundError as missing:
            raise self._explain_missing(licence, missing) from missing
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
        self.phases.report(
            "publication_replaced",
            abandoned=abandoned.id,
            tag=tag,
            message=f"the abandoned commit is kept under the tag {tag} for "
            f"{RETENTION.days} days; get its objects back with "
            f"`perago restore {space.repository} {tag}`",
        )

    def _refuse_unexplained(self, abandoned: Commit) -> None:
        """Metadata may veto a relocation, never permit one."""
        assert_replaceable(abandoned, self.execution.attempt, self.policy.replacement)
        if self.lake.changes_actions(self.workspace.repository, abandoned):
            raise PublishFenceError(f"HEAD {abandoned.id} changes {ACTIONS_FOLDER}")

    def _refuse_dirty_target(self) -> None:
        space = self.workspace
        if self.lake.has_uncommitted_changes(space.repository, space.branch):
            raise PublishFenceError(
                f"target branch {space.branch!r} has uncommitted changes",
                hint="Commit or reset them; nothing may write to a target branch directly.",
            )

    def _explain_missing(self, licence: Licence, missing: NotFoundError) -> PeragoError:
        """A request named two branches: the licence was withdrawn, or the target is gone."""
        staging = licence.branch
        try:
            self.lake.get_head(staging.repository, staging.branch)
        except NotFoundError:
            return StaleAttemptError(
                "a later execution of this task withdrew the licence of this one: "
                f"{staging.branch!r} was deleted"
            )
        return PublishFenceError(
            f"target branch {self.workspace.branch!r} is not there any more: {missing}"
        )

    def _is_our_merge(self, head: Commit) -> bool:
        record = read_record(head)
        return record is not None and record.execution_id == self.execution.id

    def _resolve(
        self,
        lost: LostReplyError,
        licence: Licence,
        commit: str,
        *,
        before: str,
        landed: Callable[[Commit], bool],
    ) -> str:
        """After a lost reply, withdraw the own licence and read; never ask for the change again.

        Returns the id of HEAD when the change landed. With the licence gone and the time that it
        may take to land over, a HEAD that did not move means that it never will.
        """
        space = self.workspace
        self.phases.report("reply_lost", error=str(lost))
        try:
            self.licences.withdraw_own(licence, commit)
        except BackendError as error:
            raise UnknownOutcomeError(
                f"the reply was lost ({lost}) and the licence could not be withdrawn: {error}"
            ) from error
        deadline = self.clock.monotonic() + self.landing_seconds
        while True:
            # Before the reading: an answer may be on its way for longer than the rest of the time.
            is_over = self.clock.monotonic() >= deadline
            try:
                head = self.lake.get_head(space.repository, space.branch)
            except BackendError:
                head = None
            if head is not None and landed(head):
                self.phases.report("resolved_as_landed", head=head.id)
                return head.id
            if is_over:
                raise self._not_landed(lost, head, before) from lost
            self.clock.sleep(_READ_AGAIN_SECONDS)

    def _not_landed(self, lost: LostReplyError, head: Commit | None, before: str) -> PeragoError:
        branch = self.workspace.branch
        if head is None:
            return UnknownOutcomeError(
                f"the reply was lost and {branch!r} could not be read: {lost}"
            )
        if head.id != before:
            # Not where it was, and not ours: our commit may be below it.
            return UnknownOutcomeError(
                f"the reply was lost and HEAD of {branch!r} is {head.id}: {lost}"
            )
        self.phases.report("resolved_as_not_landed", head=head.id)
        return NotPublishedError(
            f"the reply was lost and {branch!r} did not move; the licence was withdrawn, so that "
            f"it no longer can: {lost}"
        )


@contextmanager
def _kept_if_unreadable(what: str) -> Iterator[None]:
    """Something was published; if it cannot be read back, its evidence must stay."""
    try:
        yield
    except BackendError as error:
        raise UnknownOutcomeError(f"{what} and could not be read back: {error}") from error
