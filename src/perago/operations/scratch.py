"""Short-lived branches on which a command tries something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from perago.errors import BackendError
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
    report_leftover: Callable[[str, str], None],
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
            report_leftover(name, str(error))
