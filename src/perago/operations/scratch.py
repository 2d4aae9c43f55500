"""Short-lived branches of a command, and the reading after they are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from perago.errors import BackendError, BackendUnavailableError, UnknownOutcomeError
from perago.protocol.workspace import StagingBranch


class Branches(Protocol):
    """As much of LakeFS as a scratch branch needs."""

    def create_branch(self, staging: StagingBranch, source: str) -> None: ...
    def delete_branch(self, staging: StagingBranch) -> None: ...


@contextmanager
def scratch_branch(
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


@contextmanager
def after_merge(branch: str) -> Iterator[None]:
    """Read what became of a merge that was sent: an outage leaves that open."""
    try:
        yield
    except BackendUnavailableError as error:
        raise UnknownOutcomeError(
            f"the merge into {branch!r} was sent, and whether it landed cannot be read: {error}",
            hint="Look at the branch when LakeFS answers again, before the command is repeated.",
        ) from error
