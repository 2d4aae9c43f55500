"""Restore: bring back to a branch, by one commit, what a replaced or withdrawn commit held.

On a short-lived branch from HEAD, LakeFS takes back the publication that is there in its place and
repeats the lost commit; that branch is merged. So later commits of the branch stay, no object is
copied, and where later commits changed the same objects LakeFS finds a conflict and nothing is
done. The commit has no record: it is the person's who asked for it, and no attempt replaces it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from perago.errors import (
    BackendRefusedError,
    ConflictError,
    MixedPublicationError,
    NotFoundError,
    PreconditionError,
    RestoreError,
)
from perago.names import ENTRIES_PER_PAGE
from perago.operations.history import (
    Differences,
    HistoryLake,
    LostCommit,
    read_lost,
    took_place,
)
from perago.operations.short_lived import (
    merge_short_lived,
    refuse_uncommitted,
    short_lived_branch,
)
from perago.protocol.garbage import read_tag
from perago.protocol.ports import Change, Lake
from perago.protocol.record import RESTORED_TAG, read_record
from perago.protocol.workspace import BranchHead, Commit, StagedWorkspace, StagingBranch

# Keys that are listed; the rest is counted.
MOST_LISTED = 100


class RestoringLake(HistoryLake, Lake, Protocol):
    """What a restoration asks of LakeFS."""

    def changes_actions(self, repository: str, commit: Commit) -> bool: ...
    def revert(self, staging: StagingBranch, commit_id: str) -> None: ...
    def cherry_pick(self, staging: StagingBranch, commit_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restoration changes, or has changed."""

    repository: str
    branch: str
    lost: LostCommit
    head: str
    # The commit of the branch that is taken back, if one is there in place of the lost one.
    instead: str | None
    # Commits of the branch after that, which stay.
    later: int
    counts: dict[str, int]
    # The first of them, by key.
    changes: tuple[Change, ...]
    # What the branch has already, or has since: the commit that restored or published it.
    commit: str | None = None
    already: bool = False

    @property
    def changed(self) -> int:
        return sum(self.counts.values())


class Restorer:
    """Plans and makes restorations in one repository."""

    def __init__(
        self,
        lake: RestoringLake,
        differences: Differences,
        report_undeleted: Callable[[str, str], None],
    ) -> None:
        self._lake = lake
        self._differences = differences
        self._report_undeleted = report_undeleted

    def restore(
        self, repository: str, tag: str, branch: str | None = None, *, really: bool
    ) -> Restoration:
        """Try a restoration on a short-lived branch; merge it if it is ``really`` wanted."""
        lost = self._find(repository, tag)
        recorded = lost.record.branch if lost.record else None
        branch = branch or recorded or self._lake.default_branch(repository)
        log = self._lake.log(repository, branch, ENTRIES_PER_PAGE)
        after = _after(log, lost, branch)
        if done := _already(after, lost):
            return Restoration(
                repository, branch, lost, log[0].id, None, 0, {}, (), done, already=True
            )
        instead = after[-1] if after and took_place(after[-1], lost) else None
        self._refuse(repository, branch, lost)
        name = f"perago-restore-{uuid.uuid4().hex}"
        head = log[0].id
        with short_lived_branch(
            self._lake, repository, name, head, self._report_undeleted
        ) as staging:
            self._build(staging, lost, instead)
            made = self._lake.get_head(repository, staging.branch).id
            counts, listed = self._compare(repository, log[0].id, made)
            commit = None
            if really and counts:
                staged = StagedWorkspace(repository, staging.branch, made)
                commit = self._merge(staged, branch, log[0].id, lost)
        later = len(after) - (instead is not None)
        return Restoration(
            repository,
            branch,
            lost,
            log[0].id,
            instead.id if instead else None,
            later,
            dict(counts),
            listed,
            commit,
            already=not counts,
        )

    def _find(self, repository: str, name: str) -> LostCommit:
        found = [tag for tag in self._lake.list_tags(repository, name) if tag.name == name]
        if not found:
            raise NotFoundError(
                f"repository {repository!r} has no tag {name!r}",
                hint=f"`perago history {repository}` lists the tags of lost commits.",
            )
        (tag,) = found
        if read_tag(tag.name, tag.commit) is None:
            raise RestoreError(f"{name!r} is no tag of a replaced or withdrawn commit")
        lost = read_lost(self._lake, repository, BranchHead(tag.name, tag.commit))
        if lost is None:
            raise RestoreError(
                f"{name!r} is the tag of an execution that had committed nothing",
                hint="There is nothing to bring back.",
            )
        return lost

    def _refuse(self, repository: str, branch: str, lost: LostCommit) -> None:
        if self._lake.changes_actions(repository, lost.commit):
            raise RestoreError(f"commit {lost.commit.id} changes the repository's actions")
        refuse_uncommitted(self._lake, repository, branch)

    def _build(self, staging: StagingBranch, lost: LostCommit, instead: Commit | None) -> None:
        try:
            if instead is not None:
                self._lake.revert(staging, instead.id)
            self._lake.cherry_pick(staging, lost.commit.id)
        except ConflictError as conflict:
            raise RestoreError(
                f"later commits of the branch changed objects of commit {lost.commit.id}, or of "
                f"the one in its place: {conflict}"
            ) from conflict
        except (NotFoundError, PreconditionError):
            raise
        except BackendRefusedError as refused:
            raise RestoreError(
                f"commit {lost.commit.id} cannot be repeated on the branch: {refused}"
            ) from refused

    def _compare(
        self, repository: str, head: str, made: str
    ) -> tuple[Counter[str], tuple[Change, ...]]:
        counts: Counter[str] = Counter()
        listed: list[Change] = []
        for change in self._differences.changes(repository, head, made):
            counts[change.kind] += 1
            if len(listed) < MOST_LISTED:
                listed.append(change)
        return counts, tuple(listed)

    def _merge(self, staged: StagedWorkspace, branch: str, head: str, lost: LostCommit) -> str:
        made = merge_short_lived(
            self._lake,
            staged,
            branch,
            head,
            message=f"perago: restore commit {lost.commit.id}, which was {lost.how}",
            metadata={RESTORED_TAG: lost.tag},
            has_landed=lambda now: (
                now.first_parent == head and now.metadata.get(RESTORED_TAG) == lost.tag
            ),
            hint=f"Look again with `perago history {staged.repository} {branch}`; what was "
            "restored is not restored twice.",
        )
        if made.first_parent != head:
            raise MixedPublicationError(
                f"commit {made.id} restored objects on top of {made.first_parent}, which was "
                f"published on {branch!r} meanwhile, and not of {head}",
                hint="Compare the two commits; later runs of a task read what the branch has now.",
            )
        return made.id


def _after(log: Sequence[Commit], lost: LostCommit, branch: str) -> Sequence[Commit]:
    """The commits of the branch after the one that the lost commit was made from, newest first."""
    parent = lost.commit.first_parent
    for place, commit in enumerate(log):
        if commit.id == parent:
            return log[:place]
    raise RestoreError(
        f"commit {lost.commit.id} was made from {parent}, which is not among the last {len(log)} "
        f"commits of {branch!r}",
        hint="If it was made for another branch, name that with --branch.",
    )


def _already(after: Sequence[Commit], lost: LostCommit) -> str | None:
    """The commit of the branch that holds the lost commit's changes already."""
    for commit in after:
        if commit.id == lost.commit.id or commit.metadata.get(RESTORED_TAG) == lost.tag:
            return commit.id
        record = read_record(commit)
        if record and lost.record and record.execution_id == lost.record.execution_id:
            return commit.id
    return None
