"""A branch as a graph of commits: inputs, publications, lost commits and people's commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from perago.dashboard.kept import RecentValues
from perago.dashboard.sources import LakeSource
from perago.operations.history import HistoryEntry, read_history
from perago.protocol.ports import Change
from perago.protocol.workspace import BranchHead, Commit

# Changes of a commit that are shown beside it, and on a page of its own.
MOST_CHANGES = 20
MOST_CHANGES_OF_ONE = 500
# Of the tags that keep lost commits, the newest; each is one request the first time.
_MOST_TAGS = 200
_MOST_KEPT = 2000


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A commit of the graph."""

    entry: HistoryEntry
    changes: tuple[Change, ...]
    more_changes: bool
    is_head: bool
    # How many of the commits that are shown were made from this one.
    inputs: int


@dataclass(frozen=True, slots=True)
class BranchView:
    """The last commits of a branch, newest first, with the lost ones beside them."""

    repository: str
    branch: str
    rows: tuple[CommitRow, ...]
    more: bool


class CommitCache:
    """A lake whose commits and their changes, which stay as they are, are read once."""

    def __init__(self, lake: LakeSource) -> None:
        self._lake = lake
        self._commits: RecentValues[tuple[str, str], Commit] = RecentValues(_MOST_KEPT)
        self._changes: RecentValues[tuple[str, str, str], tuple[Change, ...]] = RecentValues(
            _MOST_KEPT
        )
        self.default_branch = lake.default_branch
        self.log = lake.log
        self.list_branches = lake.list_branches

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        key = repository, commit_id
        return self._commits.get(key) or self._commits.keep(
            key, self._lake.get_commit(repository, commit_id)
        )

    def changes(self, repository: str, base: str, commit: str) -> Iterator[Change]:
        """The first changes of a commit: one more than is shown tells that there are others."""
        return iter(self.first_changes(repository, base, commit))

    def first_changes(self, repository: str, base: str, commit: str) -> tuple[Change, ...]:
        key = repository, base, commit
        found = self._changes.get(key)
        if found is None:
            read = self._lake.changes(repository, base, commit)
            found = self._changes.keep(key, tuple(islice(read, MOST_CHANGES + 1)))
        return found

    def list_tags(self, repository: str, prefix: str) -> Sequence[BranchHead]:
        """The newest tags: their names have the day after the prefix."""
        return sorted(self._lake.list_tags(repository, prefix), key=_name)[-_MOST_TAGS:]


def _name(head: BranchHead) -> str:
    return head.name


def read_branch(
    commits: CommitCache, repository: str, branch: str | None, limit: int
) -> BranchView:
    """Read the last ``limit`` commits of a branch and what they changed."""
    history = read_history(commits, commits, repository, branch, limit=limit)
    inputs = [entry.record.ref for entry in history.entries if entry.record is not None]
    rows = []
    for entry in history.entries:
        parent = entry.commit.first_parent
        found = commits.first_changes(repository, parent, entry.commit.id) if parent else ()
        rows.append(
            CommitRow(
                entry,
                found[:MOST_CHANGES],
                len(found) > MOST_CHANGES,
                entry.commit.id == history.head,
                inputs.count(entry.commit.id),
            )
        )
    return BranchView(history.repository, history.branch, tuple(rows), history.more)


def read_changes(
    lake: LakeSource, repository: str, commit: Commit
) -> tuple[tuple[Change, ...], bool]:
    """Read what one commit changed against its first parent, and whether there is more."""
    if commit.first_parent is None:
        return (), False
    found = lake.changes(repository, commit.first_parent, commit.id)
    first = list(islice(found, MOST_CHANGES_OF_ONE + 1))
    return tuple(first[:MOST_CHANGES_OF_ONE]), len(first) > MOST_CHANGES_OF_ONE
