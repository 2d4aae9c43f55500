"""A LakeFS repository in memory: immutable commits, branches with uncommitted changes, tags."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

from perago.errors import (
    BackendDeniedError,
    BackendRefusedError,
    ConflictError,
    NotFoundError,
)
from perago.protocol.workspace import Commit
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE

_BRANCH_ID = re.compile(r"[0-9A-Za-z_][-0-9A-Za-z_]*")
_SHORTEST_ABBREVIATION = 6
DEFAULT_BRANCH = "main"
_COMMITTER = "admin"
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object. For diff and merge two objects are equal when all fields are."""

    content: bytes
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: tuple[tuple[str, str], ...] = ()


Tree = dict[str, StoredObject]


@dataclass(slots=True)
class Branch:
    """A commit, and the writes since then; None is a deletion."""

    head: str
    uncommitted: dict[str, StoredObject | None] = field(default_factory=dict)


class Repository:
    """The state of one repository, with the rules of LakeFS."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.branches: dict[str, Branch] = {}
        self.tags: dict[str, str] = {}
        self.protected: list[str] = []
        self._commits: dict[str, tuple[Commit, Tree]] = {}
        self._numbers = itertools.count()
        first = self.add_commit((), {}, {})
        self.branches[DEFAULT_BRANCH] = Branch(first.id)

    def branch(self, name: str) -> Branch:
        try:
            return self.branches[name]
        except KeyError:
            raise NotFoundError(f"branch {name!r} not found") from None

    def commit(self, commit_id: str) -> Commit:
        """Return a commit by its full id; raises ``NotFoundError``."""
        try:
            return self._commits[commit_id][0]
        except KeyError:
            raise NotFoundError(f"commit {commit_id} not found") from None

    def ancestry(self, commit_id: str, amount: int) -> list[Commit]:
        """Return a commit and those before it by first parents, newest first."""
        found = [self.commit(commit_id)]
        while len(found) < amount and (parent := found[-1].first_parent):
            found.append(self.commit(parent))
        return found

    def tree(self, commit_id: str) -> Tree:
        self.commit(commit_id)
        return self._commits[commit_id][1]

    def add_commit(self, parents: tuple[str, ...], tree: Tree, metadata: dict[str, str]) -> Commit:
        text = f"{self.name}/{next(self._numbers)}/{parents}/{sorted(tree)}/{sorted(metadata)}"
        commit = Commit(
            hashlib.sha256(text.encode()).hexdigest(),
            parents,
            dict(metadata),
            committer=_COMMITTER,
            message="a commit",
            created=_CREATED,
        )
        self._commits[commit.id] = (commit, dict(tree))
        return commit

    def resolve(self, ref: str) -> str:
        """Return the commit id of a branch, a tag, a commit id or its abbreviation."""
        if ref in self.branches:
            return self.branches[ref].head
        if ref in self.tags:
            return self.tags[ref]
        if ref in self._commits:
            return ref
        if len(ref) >= _SHORTEST_ABBREVIATION:
            found = [commit_id for commit_id in self._commits if commit_id.startswith(ref)]
            if len(found) == 1:
                return found[0]
        raise NotFoundError(f"reference {ref!r} not found")

    def visible(self, ref: str) -> Tree:
        """Return the objects that are visible at ``ref``: on a branch, uncommitted changes too."""
        tree = dict(self.tree(self.resolve(ref)))
        if ref in self.branches:
            for key, item in self.branches[ref].uncommitted.items():
                if item is None:
                    tree.pop(key, None)
                else:
                    tree[key] = item
        return tree

    def is_dirty(self, name: str) -> bool:
        """Return whether a branch differs from its head; equal objects are no difference."""
        return self.visible(name) != self.tree(self.branch(name).head)

    def create_branch(self, name: str, source: str) -> None:
        if not _BRANCH_ID.fullmatch(name):
            raise BackendRefusedError(f"{name!r} is not a valid branch id")
        head = self.resolve(source)
        if name in self.branches:
            raise ConflictError(f"branch {name!r} already exists")
        self.branches[name] = Branch(head)

    def refuse_protected(self, name: str) -> None:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.protected):
            raise BackendDeniedError(f"{name!r} is a protected branch")

    def merge_base(self, one: str, other: str) -> str:
        """Return the nearest common ancestor of two commits."""
        ancestors = set(self._ancestors(one))
        for commit_id in self._ancestors(other):
            if commit_id in ancestors:
                return commit_id
        raise BackendRefusedError("no common ancestor")  # pragma: no cover - one root each

    def _ancestors(self, start: str) -> list[str]:
        """Return the ancestors of a commit, breadth first, the commit included."""
        order: list[str] = []
        waiting = deque([start])
        while waiting:
            commit_id = waiting.popleft()
            if commit_id not in order:
                order.append(commit_id)
                waiting.extend(self.commit(commit_id).parents)
        return order


def merge_trees(base: Tree, source: Tree, target: Tree) -> Tree:
    """Merge three ways; a key that both sides changed differently is a ``ConflictError``."""
    merged: Tree = {}
    for key in sorted({*base, *source, *target}):
        before, theirs, ours = base.get(key), source.get(key), target.get(key)
        if theirs != before and ours not in (before, theirs):
            raise ConflictError(f"conflict on {key!r}")
        chosen = ours if theirs == before else theirs
        if chosen is not None:
            merged[key] = chosen
    return merged
