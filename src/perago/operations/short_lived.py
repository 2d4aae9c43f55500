"""The short-lived branch of a command, and the one merge that moves a target from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from perago.errors import (
    BackendError,
    BackendUnavailableError,
    LostReplyError,
    PreconditionError,
    PublishFenceError,
    UnknownOutcomeError,
)
from perago.protocol.job import DEFAULT_MERGE_TIMEOUT_SECONDS
from perago.protocol.ports import Lake
from perago.protocol.record import EXPECTED_HEAD
from perago.protocol.workspace import Commit, StagedWorkspace, StagingBranch


class Branches(Protocol):
    """As much of LakeFS as a short-lived branch needs."""

    def create_branch(self, staging: StagingBranch, source: str) -> None: ...
    def delete_branch(self, staging: StagingBranch) -> None: ...


@contextmanager
def short_lived_branch(
    lake: Branches,
    repository: str,
    name: str,
    source: str,
    report_undeleted: Callable[[str, str], None],
) -> Iterator[StagingBranch]:
    """Create a branch for the block and delete it at its end, whatever happens.

    A branch that could not be deleted is reported with the reason.
    """
    branch = StagingBranch(repository, name)
    try:
        lake.create_branch(branch, source)
        yield branch
    finally:
        try:
            lake.delete_branch(branch)
        except BackendError as error:
            # Never hides what happened before: an error on its way out stays the error.
            report_undeleted(name, str(error))
        except BaseException:
            report_undeleted(name, "the command was stopped meanwhile")
            raise


def refuse_uncommitted(lake: Lake, repository: str, branch: str) -> None:
    """Raise ``PublishFenceError`` if a branch takes no merge, before anything is prepared."""
    if lake.has_uncommitted_changes(repository, branch):
        raise PublishFenceError(
            f"branch {branch!r} of {repository!r} has uncommitted changes and takes no merge",
            hint="Commit or reset them, then run the command again.",
        )


def merge_short_lived(
    lake: Lake,
    staged: StagedWorkspace,
    branch: str,
    head: str,
    *,
    message: str,
    has_landed: Callable[[Commit], bool],
    hint: str,
    metadata: Mapping[str, str] | None = None,
) -> Commit:
    """Move a branch from ``head`` by one merge, and return the commit it made.

    A merge is never repeated. After a lost reply, ``has_landed`` says of the branch's HEAD whether
    it is that merge, and ``hint`` what to do if it is not. Without the hard fence, another
    writer's commit that comes at the same moment is below the new one: the caller compares.
    """
    now = lake.get_head(staged.repository, branch).id
    if now != head:
        raise PublishFenceError(
            f"branch {branch!r} of {staged.repository!r} moved from {head} to {now}; nothing was "
            "changed",
            hint="Look at what was published, then run the command again: it starts from there.",
        )
    try:
        with _unknown_if_stopped(branch):
            made = lake.merge(
                staged,
                branch,
                message=message,
                metadata={EXPECTED_HEAD: head, **(metadata or {})},
                timeout=DEFAULT_MERGE_TIMEOUT_SECONDS,
            )
    except PreconditionError as refused:
        raise PublishFenceError(
            f"a hook refused the merge into {branch!r} of {staged.repository!r}: {refused}",
            hint="If the branch moved meanwhile, run the command again.",
        ) from refused
    except LostReplyError as lost:
        with _unknown_after(branch):
            found = lake.get_head(staged.repository, branch)
            if has_landed(found):
                return found
        raise UnknownOutcomeError(
            f"the reply to the merge was lost, and {branch!r} is at {found.id}: {lost}", hint=hint
        ) from lost
    with _unknown_after(branch):
        return lake.get_commit(staged.repository, made)


@contextmanager
def _unknown_after(branch: str) -> Iterator[None]:
    """Read what became of a merge that was sent: an outage leaves that open."""
    try:
        yield
    except BackendUnavailableError as error:
        raise UnknownOutcomeError(
            f"the merge into {branch!r} was sent, and whether it landed cannot be read: {error}",
            hint="Look at the branch when LakeFS answers again, before the command is repeated.",
        ) from error


@contextmanager
def _unknown_if_stopped(branch: str) -> Iterator[None]:
    """Say of a stop signal that it came while a merge was under way, which goes on without us."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        raise UnknownOutcomeError(
            f"stopped while the merge into {branch!r} was under way; it may have landed",
            hint="Look at the branch with `perago history` before the command is repeated.",
        ) from stop
