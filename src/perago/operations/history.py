"""The history of a branch: its commits, and the commits that executions lost on the way.

Everything comes from LakeFS: the branch's log, the records in it, and the tags that keep replaced
and withdrawn commits. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, Protocol

from perago.names import MOST_COMMITS_SHOWN
from perago.protocol.garbage import TAG_PREFIXES, read_tag
from perago.protocol.ports import Change
from perago.protocol.record import RESTORED_TAG, STAGING_COMMIT, Record, read_record
from perago.protocol.workspace import BranchHead, Commit

# A commit's changes are counted up to here: ten pages of a listing.
MOST_COUNTED = 10_000
# Each tag costs a request; of each kind the latest are read.
_MOST_TAGS = 500

EntryKind = Literal["publication", "person", "restoration", "replaced", "withdrawn"]


class HistoryLake(Protocol):
    """What a history reads of a repository."""

    def default_branch(self, repository: str) -> str: ...
    def log(self, repository: str, branch: str, amount: int) -> Sequence[Commit]: ...
    def get_commit(self, repository: str, commit_id: str) -> Commit: ...
    def list_tags(self, repository: str, prefix: str) -> Sequence[BranchHead]: ...


class Differences(Protocol):
    """How commits differ."""

    def changes(self, repository: str, base: str, commit: str) -> Iterator[Change]: ...


@dataclass(frozen=True, slots=True)
class LostCommit:
    """A commit that a tag keeps; its record says that the tag's logical task made it."""

    tag: str
    how: Literal["replaced", "withdrawn"]
    commit: Commit
    record: Record | None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit, on the branch or lost."""

    kind: EntryKind
    commit: Commit
    record: Record | None = None
    # Objects that it changed against its first parent, counted up to ``MOST_COUNTED``.
    changed: int = 0
    # A commit of the branch: the lost commits in whose place it is.
    replaces: tuple[str, ...] = ()
    # A lost commit: the commit of the branch in its place.
    replaced_by: str | None = None
    # That keeps a lost commit, or that a restoration brought back.
    tag: str | None = None

    @property
    def is_lost(self) -> bool:
        return self.kind in ("replaced", "withdrawn")


@dataclass(frozen=True, slots=True)
class History:
    """The last commits of a branch, newest first, each followed by those that it replaced."""

    repository: str
    branch: str
    head: str
    entries: tuple[HistoryEntry, ...]
    # Whether the branch has older commits.
    more: bool


def read_history(
    lake: HistoryLake,
    differences: Differences,
    repository: str,
    branch: str | None = None,
    *,
    limit: int = 20,
) -> History:
    """Read the last ``limit`` commits of a branch, by default the repository's default branch."""
    branch = branch or lake.default_branch(repository)
    limit = min(limit, MOST_COMMITS_SHOWN)
    log = lake.log(repository, branch, limit + 1)
    shown = log[:limit]
    lost = _by_parent(find_lost(lake, repository, branch, log))
    head = shown[0]
    # Where nothing has come in their place the branch was taken back, or waits for a retry.
    entries = [_lost_entry(sibling, None) for sibling in lost.get(head.id, ())]
    for commit in shown:
        siblings = lost.get(commit.first_parent or "", [])
        entries.append(_entry(commit, siblings))
        entries += [_lost_entry(sibling, commit) for sibling in siblings]
    counted = (_counted(entry, differences, repository) for entry in entries)
    return History(repository, branch, head.id, tuple(counted), len(log) > len(shown))


def find_lost(
    lake: HistoryLake, repository: str, branch: str, log: Iterable[Commit]
) -> Iterator[LostCommit]:
    """Find the replaced and withdrawn commits that were to follow a commit of ``log``."""
    commits = {commit.id: commit for commit in log}
    published = {record.execution_id for it in commits.values() if (record := read_record(it))}
    for prefix in TAG_PREFIXES:
        # Their names begin with the day, and LakeFS lists them by name.
        for tag in lake.list_tags(repository, prefix)[-_MOST_TAGS:]:
            found = read_lost(lake, repository, tag)
            if found is None or found.commit.id in commits:
                continue
            if found.commit.first_parent not in commits:
                continue
            record = found.record
            if record is not None and record.branch not in (None, branch):
                continue
            # A merge whose reply was lost: its licence was withdrawn, and it had landed.
            if found.how == "withdrawn" and record and record.execution_id in published:
                continue
            yield found


def read_lost(lake: HistoryLake, repository: str, tag: BranchHead) -> LostCommit | None:
    """Read the commit that a tag keeps.

    None for a tag that Perago did not make, and for that of a licence with no commit of its own.
    """
    kept = read_tag(tag.name, tag.commit)
    if kept is None:
        return None
    # A tag may be deleted meanwhile; its commit stays.
    commit = lake.get_commit(repository, tag.commit)
    record = read_record(commit)
    if kept.how == "withdrawn":
        own = record is not None and kept.fingerprint in (None, record.logical.fingerprint)
        if not own:
            return None
    return LostCommit(tag.name, kept.how, commit, record)


def _by_parent(lost: Iterable[LostCommit]) -> dict[str, list[LostCommit]]:
    found: dict[str, list[LostCommit]] = {}
    seen: set[str] = set()
    for commit in lost:
        # One commit may be kept by several tags; the first, of a replacement, says more.
        if commit.commit.id not in seen and commit.commit.first_parent:
            seen.add(commit.commit.id)
            found.setdefault(commit.commit.first_parent, []).append(commit)
    return found


def _entry(commit: Commit, siblings: Sequence[LostCommit]) -> HistoryEntry:
    record = read_record(commit)
    if record is None:
        tag = commit.metadata.get(RESTORED_TAG)
        return HistoryEntry("restoration" if tag else "person", commit, tag=tag)
    # A withdrawn commit was never on the branch.
    replaced = (lost for lost in siblings if lost.how == "replaced" and took_place(commit, lost))
    return HistoryEntry(
        "publication", commit, record, replaces=tuple(it.commit.id for it in replaced)
    )


def _lost_entry(lost: LostCommit, after: Commit | None) -> HistoryEntry:
    instead = after.id if after is not None and took_place(after, lost) else None
    return HistoryEntry(lost.how, lost.commit, lost.record, replaced_by=instead, tag=lost.tag)


def took_place(commit: Commit, lost: LostCommit) -> bool:
    """Whether a commit of the branch is there in place of a lost one, which has the same parent.

    A replacement is the staged commit itself; a merge found the branch at its input, from which
    whatever was there before had been taken back. A withdrawn commit was never on the branch: the
    publication of the same logical task is there in its place.
    """
    record = read_record(commit)
    if record is None or record.ref != lost.commit.first_parent:
        return False
    if lost.how == "replaced":
        return STAGING_COMMIT not in commit.metadata
    return lost.record is not None and lost.record.logical == record.logical


def _counted(entry: HistoryEntry, differences: Differences, repository: str) -> HistoryEntry:
    parent = entry.commit.first_parent
    if parent is None:
        return entry
    found = differences.changes(repository, parent, entry.commit.id)
    return replace(entry, changed=sum(1 for _ in islice(found, MOST_COUNTED)))
