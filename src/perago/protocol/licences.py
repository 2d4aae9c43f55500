"""Licences: the right of an execution to move the target branch, given and withdrawn as a branch.

A request that its client gave up may be carried out much later, on top of what a retry has
published since. LakeFS resolves the *source* of a merge and of a hard reset inside its branch
update. So every request that moves the target names the execution's own staging branch as its
source, never a commit id: that branch is the licence, and deleting it withdraws the licence for
good, also for requests that are still under way (docs/protocol.md, section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perago.names import WITHDRAWN_PREFIX
from perago.protocol.events import Phases
from perago.protocol.identity import Execution, LogicalTask, parse_staging_name
from perago.protocol.ports import Clock, Lake
from perago.protocol.workspace import BranchHead, StagingBranch


def withdrawn_tag(day: str, commit: str, fingerprint: str) -> str:
    """The name of the tag that a withdrawal leaves.

    ``day`` is YYYYMMDD, ``fingerprint`` that of the logical task.
    """
    return f"{WITHDRAWN_PREFIX}{day}-{commit}-{fingerprint}"


def is_withdrawn_tag_of(task: LogicalTask, tag: str) -> bool:
    """Whether a tag tells that a licence of this logical task was withdrawn."""
    return tag.startswith(WITHDRAWN_PREFIX) and tag.endswith(f"-{task.fingerprint}")


@dataclass(slots=True)
class Licence:
    """The staging branch of one execution; it must not exist before it is created."""

    lake: Lake
    branch: StagingBranch
    ref: str
    # Whether LakeFS was asked for the branch: it may be there even when creating it failed.
    requested: bool = False

    def create(self) -> None:
        """Create the branch at the input commit; an existing one fails the attempt."""
        self.requested = True
        self.lake.create_branch(self.branch, self.ref)

    def ensure(self) -> None:
        """Create the branch unless that was done: a no-op needs one only to relocate."""
        if not self.requested:
            self.create()


class Licences:
    """Withdraws licences on behalf of one execution."""

    def __init__(
        self,
        lake: Lake,
        clock: Clock,
        phases: Phases,
        execution: Execution,
        *,
        landing_seconds: float,
        end_spark_session: Callable[[str], None] | None = None,
    ) -> None:
        """``landing_seconds`` is the time that a merge may take once it resolved its source.

        ``end_spark_session`` ends an execution's Spark session by its id; None where neither the
        task nor the movement of its workspace uses Spark.
        """
        self._lake = lake
        self._clock = clock
        self._phases = phases
        self._execution = execution
        self._landing_seconds = landing_seconds
        self._end_spark_session = end_spark_session
        self._withdrawn_at: float | None = None

    def withdraw_others(self, repository: str) -> None:
        """Withdraw the licences of all other executions of this logical task.

        A licence may be gone already while one of its requests is still landing: its owner
        withdrew it and died, or an execution in between did, or garbage collection. Each of them
        left a tag, which therefore counts like a licence that was withdrawn just now.
        """
        task = self._execution.attempt.logical
        for branch in self._lake.list_branches(repository, task.staging_prefix):
            name = parse_staging_name(branch.name)
            if name is None or not name.is_licence_of(task):
                continue
            if branch.name == self._execution.staging_branch_name:
                continue
            self._withdraw(repository, branch)
            if self._end_spark_session is not None:
                self._end_spark_session(name.execution_id)
        # After the branches: a licence that another process withdraws meanwhile, tag first, is
        # among the branches or has its tag by now.
        if any(is_withdrawn_tag_of(task, tag) for tag in self._tags(repository)):
            self._withdrawn_at = self._clock.monotonic()

    def withdraw_own(self, licence: Licence, commit: str) -> None:
        """Withdraw this execution's licence: none of its requests can land any more afterwards.

        ``commit`` is what the licence's branch had committed.
        """
        self._withdraw(licence.branch.repository, BranchHead(licence.branch.branch, commit))

    def await_landing(self) -> bool:
        """Wait until no request of a withdrawn licence can land any more; whether time passed.

        A request that had resolved its source before the withdrawal may still be landing.
        """
        if self._withdrawn_at is None:
            return False
        left = self._withdrawn_at + self._landing_seconds - self._clock.monotonic()
        if left > 0:
            self._clock.sleep(left)
        return True

    def _tags(self, repository: str) -> Iterator[str]:
        return (tag.name for tag in self._lake.list_tags(repository, WITHDRAWN_PREFIX))

    def _withdraw(self, repository: str, branch: BranchHead) -> None:
        """Tag, then delete: from the deletion on only the tag tells of the licence.

        An empty licence, which has no commit of its own, leaves its tag too.
        """
        task = self._execution.attempt.logical
        tag = withdrawn_tag(self._clock.today(), branch.commit, task.fingerprint)
        self._lake.tag(repository, tag, branch.commit)
        self._lake.delete_branch(StagingBranch(repository, branch.name))
        self._withdrawn_at = self._clock.monotonic()
        self._phases.report("licence_withdrawn", branch=branch.name, tag=tag)
