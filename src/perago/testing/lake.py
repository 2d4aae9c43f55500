"""LakeFS in memory: the protocol's ``Lake``, and the transfer's object store on the same data.

It behaves as LakeFS 1.84 does; ``tests/contract`` runs the same cases against both.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from perago.errors import BackendRefusedError, ConflictError, NotFoundError, PreconditionError
from perago.lakefs.fence import ACTION_PATH, fence_state
from perago.names import ACTIONS_FOLDER
from perago.protocol.record import EXPECTED_HEAD
from perago.protocol.workspace import BranchHead, Commit, StagedWorkspace, StagingBranch
from perago.testing.faults import BranchUpdate, Faults
from perago.testing.objects import InMemoryObjects
from perago.testing.repository import DEFAULT_BRANCH, Branch, Repository, StoredObject, merge_trees


class InMemoryLake:
    """Implements ``Lake``; ``objects`` implements ``ObjectStore`` on the same repositories."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._repositories: dict[str, Repository] = {}
        # Only the race tests and the transfer engine call from several threads.
        self._lock = RLock()
        self.objects = InMemoryObjects(self.repository, self.faults, self._lock)

    # For tests, as a person or another tool: no port call, so no fault.

    def create_repository(self, name: str) -> Commit:
        """Create a repository with a branch ``main``; return its first commit, which is empty."""
        if name in self._repositories:
            raise ConflictError(f"repository {name!r} already exists")
        made = self._repositories[name] = Repository(name)
        return made.commit(made.branch(DEFAULT_BRANCH).head)

    def repository(self, name: str) -> Repository:
        """Return the state of a repository, to inspect or to change."""
        try:
            return self._repositories[name]
        except KeyError:
            raise NotFoundError(f"repository {name!r} not found") from None

    def write_and_commit(
        self,
        repository: str,
        branch: str,
        changes: dict[str, bytes | None],
        metadata: dict[str, str] | None = None,
    ) -> Commit:
        """Write objects (None deletes) on a branch and commit them, as another tool would."""
        repo = self.repository(repository)
        with self._lock:
            target = repo.branch(branch)
            for key, content in changes.items():
                target.uncommitted[key] = None if content is None else StoredObject(content)
            return self._commit(repo, branch, metadata or {})

    def contents(self, repository: str, ref: str) -> dict[str, bytes]:
        """Return the content of every object that is visible at ``ref``, by key."""
        visible = self.repository(repository).visible(ref)
        return {key: item.content for key, item in sorted(visible.items())}

    # The port.

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        return self.faults.run(
            "lake.get_commit", lambda: self.repository(repository).commit(commit_id)
        )

    def get_head(self, repository: str, branch: str) -> Commit:
        def do() -> Commit:
            repo = self.repository(repository)
            return repo.commit(repo.branch(branch).head)

        return self.faults.run("lake.get_head", do)

    def default_branch(self, repository: str) -> str:
        self.repository(repository)
        return DEFAULT_BRANCH

    def log(self, repository: str, branch: str, amount: int) -> list[Commit]:
        def do() -> list[Commit]:
            repo = self.repository(repository)
            return repo.ancestry(repo.branch(branch).head, amount)

        return self.faults.run("lake.log", do)

    def ancestry(self, repository: str, commit_id: str, amount: int) -> list[Commit]:
        def do() -> list[Commit]:
            return self.repository(repository).ancestry(commit_id, amount)

        return self.faults.run("lake.ancestry", do)

    def is_on_branch(self, repository: str, branch: str, commit_id: str) -> bool:
        def do() -> bool:
            repo = self.repository(repository)
            head, found = repo.branch(branch).head, repo.commit(commit_id)
            return repo.merge_base(head, found.id) == found.id

        return self.faults.run("lake.is_on_branch", do)

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        return self.faults.run(
            "lake.has_uncommitted_changes", lambda: self.repository(repository).is_dirty(branch)
        )

    def changes_actions(self, repository: str, commit: Commit) -> bool:
        def do() -> bool:
            repo = self.repository(repository)
            if commit.first_parent is None:
                return False
            trees = (repo.tree(commit.id), repo.tree(commit.first_parent))
            after, before = (
                {key: item for key, item in tree.items() if key.startswith(ACTIONS_FOLDER)}
                for tree in trees
            )
            return after != before

        return self.faults.run("lake.changes_actions", do)

    def has_fence(self, repository: str, ref: str) -> bool:
        def do() -> bool:
            found = self.repository(repository).visible(ref).get(ACTION_PATH)
            return found is not None and fence_state(found.content).fences

        return self.faults.run("lake.has_fence", do)

    def create_branch(self, staging: StagingBranch, source: str) -> None:
        def do() -> None:
            with self._lock:
                self.repository(staging.repository).create_branch(staging.branch, source)

        self.faults.run("lake.create_branch", do)

    def delete_branch(self, staging: StagingBranch) -> None:
        def do() -> None:
            with self._lock:
                self.repository(staging.repository).branches.pop(staging.branch, None)

        self.faults.run("lake.delete_branch", do)

    def commit(
        self, staging: StagingBranch, message: str, metadata: dict[str, str]
    ) -> StagedWorkspace:
        def do() -> StagedWorkspace:
            with self._lock:
                made = self._commit(self.repository(staging.repository), staging.branch, metadata)
            return StagedWorkspace(staging.repository, staging.branch, made.id)

        return self.faults.run("lake.commit", do)

    def merge(
        self,
        staged: StagedWorkspace,
        target: str,
        *,
        message: str,
        metadata: dict[str, str],
        timeout: float,
    ) -> str:
        def resolve() -> Callable[[], str]:
            with self._lock:
                repo = self.repository(staged.repository)
                source, head = repo.branch(staged.branch).head, repo.branch(target).head

            def write() -> str:
                with self._lock:
                    if repo.branch(target).head != head:
                        return resolve()()
                    return self._merge(repo, source, repo.branch(target), target, metadata)

            return write

        return self.faults.run("lake.merge", BranchUpdate(resolve))

    def revert(self, staging: StagingBranch, commit_id: str) -> None:
        def do() -> None:
            repo = self.repository(staging.repository)
            commit = repo.commit(commit_id)
            self._apply(repo, staging.branch, base=commit.id, wanted=commit.parents[0])

        self.faults.run("lake.revert", do)

    def cherry_pick(self, staging: StagingBranch, commit_id: str) -> None:
        def do() -> None:
            repo = self.repository(staging.repository)
            commit = repo.commit(commit_id)
            self._apply(repo, staging.branch, base=commit.parents[0], wanted=commit.id)

        self.faults.run("lake.cherry_pick", do)

    def relocate(self, licence: StagingBranch, target: str, *, timeout: float) -> None:
        def resolve() -> Callable[[], None]:
            with self._lock:
                repo = self.repository(licence.repository)
                repo.refuse_protected(target)
                source, head = repo.branch(licence.branch).head, repo.branch(target).head

            def write() -> None:
                with self._lock:
                    if repo.branch(target).head != head:
                        resolve()()
                        return
                    # Uncommitted changes stay, on top of wherever the branch is now.
                    repo.branch(target).head = source

            return write

        self.faults.run("lake.relocate", BranchUpdate(resolve))

    def list_branches(self, repository: str, prefix: str) -> list[BranchHead]:
        def do() -> list[BranchHead]:
            with self._lock:
                branches = self.repository(repository).branches
                return [
                    BranchHead(name, branches[name].head)
                    for name in sorted(branches)
                    if name.startswith(prefix)
                ]

        return self.faults.run("lake.list_branches", do)

    def list_tags(self, repository: str, prefix: str) -> list[BranchHead]:
        def do() -> list[BranchHead]:
            with self._lock:
                tags = self.repository(repository).tags
                return [
                    BranchHead(name, tags[name]) for name in sorted(tags) if name.startswith(prefix)
                ]

        return self.faults.run("lake.list_tags", do)

    def is_same(self, repository: str, one: str, other: str) -> bool:
        def do() -> bool:
            repo = self.repository(repository)
            return repo.tree(repo.resolve(one)) == repo.tree(repo.resolve(other))

        return self.faults.run("lake.is_same", do)

    def tag(self, repository: str, tag: str, commit_id: str) -> None:
        def do() -> None:
            with self._lock:
                repo = self.repository(repository)
                if "/" in tag:
                    raise BackendRefusedError(f"{tag!r} is not a valid tag id")
                wanted = repo.resolve(commit_id)
                if repo.tags.setdefault(tag, wanted) != wanted:
                    raise ConflictError(f"tag {tag!r} already exists")

        self.faults.run("lake.tag", do)

    def _commit(self, repo: Repository, name: str, metadata: dict[str, str]) -> Commit:
        branch = repo.branch(name)
        repo.refuse_protected(name)
        if not repo.is_dirty(name):
            raise BackendRefusedError("commit: no changes")
        made = repo.add_commit((branch.head,), repo.visible(name), metadata)
        branch.head, branch.uncommitted = made.id, {}
        return made

    def _apply(self, repo: Repository, name: str, *, base: str, wanted: str) -> None:
        """Commit on a branch what one commit changes against another, also if it is nothing."""
        with self._lock:
            branch = repo.branch(name)
            repo.refuse_protected(name)
            if repo.is_dirty(name):
                raise BackendRefusedError("uncommitted changes (dirty branch)")
            tree = merge_trees(repo.tree(base), repo.tree(wanted), repo.tree(branch.head))
            branch.head = repo.add_commit((branch.head,), tree, {}).id

    def _merge(
        self, repo: Repository, source: str, branch: Branch, name: str, metadata: dict[str, str]
    ) -> str:
        """Squash-merge: make one commit on the target's current HEAD."""
        if repo.is_dirty(name):
            raise BackendRefusedError("uncommitted changes (dirty branch)")
        source = repo.resolve(source)
        base = repo.tree(repo.merge_base(source, branch.head))
        if repo.tree(source) == base:
            raise BackendRefusedError("no changes")
        tree = merge_trees(base, repo.tree(source), repo.tree(branch.head))
        self._run_hook(repo, source, branch.head, metadata)
        made = repo.add_commit(
            (branch.head,), tree, {**metadata, ".lakefs.merge.strategy": "default"}
        )
        branch.head, branch.uncommitted = made.id, {}
        return made.id

    def _run_hook(self, repo: Repository, source: str, head: str, metadata: dict[str, str]) -> None:
        """Run the hard fence's pre-merge hook; actions are read from the source commit."""
        if ACTION_PATH not in repo.tree(source):
            return
        expected = metadata.get(EXPECTED_HEAD)
        if expected is not None and expected != head:
            raise PreconditionError(f"perago fence: expected {expected}, found {head}")
