"""What changed since a task last saw its workspace, for tasks that take up what is new.

A task saw its input commit, and made the commit that it published. What it does not know is what
has come since: its own output is no change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perago.errors import InputError, NotFoundError, UnsupportedOperationError
from perago.names import listing_prefix
from perago.protocol.ports import Change, Lake, Objects
from perago.protocol.record import Record, read_record
from perago.protocol.workspace import Commit, WorkspaceInput

# Most tasks published within the first page.
_PAGE = 100
MOST_COMMITS = 10_000


@dataclass(frozen=True, slots=True)
class LastPublication:
    """Implements ``LastSeen``: the last publication of a task in the history of its input."""

    lake: Lake
    objects: Objects
    workspace: WorkspaceInput
    task_name: str
    prefix: str

    def changes(self, ref: str, since: str | None = None) -> tuple[str, list[Change]] | None:
        if since is not None:
            return since, self._changes_since(since, ref)
        if (found := self._find()) is None:
            return None
        publication, record = found
        return publication.id, self._unseen(publication, record, ref)

    def _changes_since(self, since: str, ref: str) -> list[Change]:
        try:
            return self._compare(since, ref)
        except NotFoundError as error:
            raise InputError(
                f"changes since {since!r}: there is no such commit, branch or tag in repository "
                f"{self.workspace.repository!r}",
                hint="Name one that is there, or leave since= out.",
            ) from error

    def _unseen(self, publication: Commit, record: Record, ref: str) -> list[Change]:
        """Compare with what the task saw and made."""
        later = self._compare(publication.id, ref)
        parent = publication.first_parent
        if parent is None or parent == record.ref:
            return later
        # A mixed publication: others' commits lie between it and its input, and were not seen.
        own = {change.key for change in self._compare(parent, publication.id)}
        others = (it for it in self._compare(record.ref, ref) if it.key not in own)
        merged = [*others, *(it for it in later if it.key in own)]
        return sorted(merged, key=lambda change: change.key.encode())

    def _compare(self, base: str, commit: str) -> list[Change]:
        start = listing_prefix(self.prefix)
        return list(self.objects.changes(self.workspace.repository, base, commit, start))

    def _find(self) -> tuple[Commit, Record] | None:
        for commit in self._history():
            record = read_record(commit)
            if record and self._is_ours(record):
                return commit, record
        return None

    def _is_ours(self, record: Record) -> bool:
        # A store may drop the empty prefix of the whole repository.
        return record.task_name == self.task_name and (record.prefix or "") == self.prefix

    def _history(self) -> Iterator[Commit]:
        """Yield the commits from the input back; raises at the bound."""
        start: str | None = self.workspace.ref
        for _ in range(0, MOST_COMMITS, _PAGE):
            if start is None:
                return
            page = self.lake.ancestry(self.workspace.repository, start, _PAGE)
            yield from page
            start = page[-1].first_parent
        if start is not None:
            raise UnsupportedOperationError(
                f"task {self.task_name!r} did not publish in the last {MOST_COMMITS} commits "
                f"before {self.workspace.ref}",
                hint="Name a commit to compare with: workspace.changes(since=…).",
            )
