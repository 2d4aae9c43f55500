"""Install the hard fence in a repository, and prove that the server enforces it.

Everything is done on short-lived branches of our own, which are deleted whatever happens. The
branch itself only ever gets one merge, so a protected branch works too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from perago.errors import BackendRefusedError, PreconditionError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT, FenceState
from perago.operations.short_lived import (
    merge_short_lived,
    refuse_uncommitted,
    short_lived_branch,
)
from perago.protocol.job import DEFAULT_MERGE_TIMEOUT_SECONDS
from perago.protocol.record import EXPECTED_HEAD
from perago.protocol.workspace import StagedWorkspace, StagingBranch

# No commit has this id, so a merge that expects it must be refused.
_NO_COMMIT = "0" * 64


@dataclass(frozen=True, slots=True)
class FenceStatus:
    """The fence at the HEAD of a branch."""

    repository: str
    branch: str
    head: str
    state: FenceState


@dataclass(frozen=True, slots=True)
class Installation:
    """What an installation found and, if it had to do something, the commit it made."""

    before: FenceStatus
    commit: str | None


@dataclass(slots=True)
class Verification:
    """What the server did with three merges; ``None`` for one that was not tried."""

    status: FenceStatus
    refuses_wrong_head: bool | None = None
    accepts_right_head: bool | None = None
    accepts_other_merges: bool | None = None
    hooks_ran: bool | None = None

    @property
    def holds(self) -> bool:
        return bool(
            self.refuses_wrong_head and self.accepts_right_head and self.accepts_other_merges
        )


class FenceAdmin:
    """The operator's side of the hard fence."""

    def __init__(self, lake: LakeFSControl, report_undeleted: Callable[[str, str], None]) -> None:
        self._lake = lake
        self._report_undeleted = report_undeleted

    def status(self, repository: str, branch: str | None = None) -> FenceStatus:
        """Look at the HEAD of a branch, by default the repository's default branch."""
        branch = branch or self._lake.default_branch(repository)
        head = self._lake.get_head(repository, branch)
        state = self._lake.read_fence(repository, head.id)
        return FenceStatus(repository, branch, head.id, state)

    def install(self, repository: str, branch: str | None = None) -> Installation:
        """Put the action file at the HEAD of a branch; nothing to do when it is there."""
        before = self.status(repository, branch)
        if before.state is FenceState.INSTALLED:
            return Installation(before, None)
        if before.state is FenceState.FOREIGN:
            raise BackendRefusedError(
                f"{ACTION_PATH} on {before.branch!r} of {repository!r} is not Perago's",
                hint="Move that file away; the hard fence needs this path.",
            )
        refuse_uncommitted(self._lake, repository, before.branch)
        with self._short_lived(repository, "install", before.head) as staging:
            self._lake.write_small(staging, ACTION_PATH, ACTION_TEXT.encode())
            staged = self._lake.commit(staging, "perago: install the publish fence", {})
            commit = self._merge_install(staged, before)
        return Installation(before, commit)

    def verify(self, repository: str, branch: str | None = None) -> Verification:
        """Try a merge with a wrong head, one with the right head, one that states no head."""
        found = Verification(self.status(repository, branch))
        if not found.status.state.fences:
            return found
        head = found.status.head
        with (
            self._short_lived(repository, "target", head) as target,
            self._short_lived(repository, "probe", head) as probe,
            self._short_lived(repository, "other", head) as other,
        ):
            staged = self._stage_probe(probe)
            found.refuses_wrong_head = self._is_refused(staged, target, {EXPECTED_HEAD: _NO_COMMIT})
            found.hooks_ran = self._lake.has_action_runs(repository, target.branch)
            if found.refuses_wrong_head:
                right = {EXPECTED_HEAD: head}
                found.accepts_right_head = not self._is_refused(staged, target, right)
                staged = self._stage_probe(other)
                found.accepts_other_merges = not self._is_refused(staged, target, {})
        return found

    def _merge_install(self, staged: StagedWorkspace, before: FenceStatus) -> str:
        # The file fences its own installation: LakeFS reads actions from the source.
        return merge_short_lived(
            self._lake,
            staged,
            before.branch,
            before.head,
            message="perago: install the publish fence",
            has_landed=lambda now: (
                self._lake.read_fence(before.repository, now.id) is FenceState.INSTALLED
            ),
            hint="Look again with `perago fence status`; installing twice does no harm.",
        ).id

    def _stage_probe(self, staging: StagingBranch) -> StagedWorkspace:
        self._lake.write_small(staging, f"{staging.branch}.txt", b"perago fence verify\n")
        return self._lake.commit(staging, "perago: probe the publish fence", {})

    def _is_refused(
        self, staged: StagedWorkspace, target: StagingBranch, metadata: dict[str, str]
    ) -> bool:
        try:
            self._lake.merge(
                staged,
                target.branch,
                message="perago: probe the publish fence",
                metadata=metadata,
                timeout=DEFAULT_MERGE_TIMEOUT_SECONDS,
            )
        except PreconditionError:
            return True
        return False

    def _short_lived(
        self, repository: str, purpose: str, source: str
    ) -> AbstractContextManager[StagingBranch]:
        name = f"perago-fence-{purpose}-{uuid.uuid4().hex}"
        return short_lived_branch(self._lake, repository, name, source, self._report_undeleted)
