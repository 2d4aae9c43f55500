"""The invariants of the protocol's section 11, looked at after every step of a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from perago.protocol.identity import Execution
from perago.protocol.outcome import Completed, Outcome
from perago.protocol.ports import AttemptSnapshot
from perago.protocol.record import EXPECTED_HEAD
from perago.protocol.workspace import Commit
from perago.testing.conductor import Workflow
from perago.testing.lake import InMemoryLake
from perago.testing.repository import Repository, Tree
from perago.worker.report import Reported

_LAST_LINES = 40


@dataclass
class BranchInvariants:
    """What was seen of one target branch; raises ``AssertionError`` at the first violation."""

    repository: Repository
    branch: str
    ref: str
    # Under head-state a person's commit may be replaced, and is then kept under a tag.
    keeps_tags: bool = False
    head: str = ""
    # Every commit that was ever HEAD.
    heads: set[str] = field(default_factory=set)
    # Commits that mix an execution's result with a person's commit: possible with the soft fence
    # only, and never to be completed with.
    mixed: set[str] = field(default_factory=set)
    persons: list[Commit] = field(default_factory=list)
    results: dict[str, dict[str, bytes]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    not_published: set[str] = field(default_factory=set)
    # The claim of each execution, and the one that it last saw on its task.
    tokens: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str | None] = field(default_factory=dict)
    # The output ref of the completion that Conductor stores now.
    completed: str | None = None
    lines: list[str] = field(default_factory=list)
    _cause: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        self.head = self.ref
        self.heads = {self.ref}

    def log(self, line: str) -> None:
        self.lines.append(line)

    @contextmanager
    def caused_by(self, owner: str, what: str) -> Iterator[None]:
        """Whatever moves the target within the block is this request's doing."""
        self._cause = (owner, what)
        yield

    def abandoned(self, execution: Execution, changes: dict[str, bytes], head: str) -> None:
        """An execution had published before the schedule begins."""
        self.claimed(execution, changes)
        self.head = head
        self.heads.add(head)

    def claimed(self, execution: Execution, changes: dict[str, bytes]) -> None:
        self.results[execution.id] = changes
        self.tokens[execution.id] = execution.claim.token

    def answered(self, owner: str, what: str, result: object) -> None:
        """An execution was told something, or did something, over there."""
        execution = f"e{owner[1:]}"
        if what == "attempts.read" and isinstance(result, AttemptSnapshot):
            self.seen[execution] = result.worker_id
        elif what == "attempts.complete":
            self._check(
                self.seen.get(execution) == self.tokens[execution],
                f"invariant 4: {owner} posted over a claim that it had read to be another's",
            )

    def ended(self, execution: Execution, outcome: Outcome) -> None:
        reason = "completed" if isinstance(outcome, Completed) else outcome.reason
        self.log(f"  {execution.id} ended: {reason[:140]}")
        if not isinstance(outcome, Completed) and reason.startswith("StaleAttemptError"):
            self.stale.add(execution.id)
        if not isinstance(outcome, Completed) and reason.startswith("NotPublishedError"):
            self.not_published.add(execution.id)
            # It may have landed and been taken back by a later one, while this one was frozen.
            landed = [h for h in self.heads if self._is_below(h, self.head) and h != self.ref]
            made = [self.repository.commit(h).metadata.get("perago.execution_id") for h in landed]
            self._check(
                execution.id not in made,
                f"section 8: {execution.id} reported that its request did not land, and it did",
            )

    def reported(self, execution: Execution, outcome: Outcome, reported: Reported) -> None:
        self.log(f"  {execution.id} reported: {reported}")

    def reopened(self) -> None:
        """An operator has the task done again: the old completion stands no longer."""
        self.completed = None

    def person_committed(self, commit: Commit) -> None:
        self.persons.append(commit)

    def observe(self, workflow: Workflow) -> None:
        """Compare the branch and the task with what was seen before."""
        now = self.repository.branch(self.branch).head
        if now != self.head:
            self._moved(now)
        task = workflow.tasks[-1]
        if task.status == "COMPLETED" and task.output:
            self._completed(str(task.output["workspace"]["ref"]))
        elif task.status != "COMPLETED":
            self.completed = None

    def _moved(self, now: str) -> None:
        owner, what = self._cause
        self.log(f"  HEAD {self.head[:6]} -> {now[:6]} by {owner} ({what})")
        before, self.head = self.head, now
        self.heads.add(now)
        if owner == "a person":
            return
        execution = f"e{owner[1:]}"
        commit = self.repository.commit(now)
        self._check(
            self.completed is None,
            f"invariant 9: {owner} moved the target after the task was completed",
        )
        self._check(
            not (execution in self.stale and what == "lake.relocate"),
            f"invariant 4: {owner} was found stale and moved the target",
        )
        self._check(
            execution not in self.not_published,
            f"section 8: {owner} reported that its request could no longer land",
        )
        self._check_content(commit, execution)
        expected = commit.metadata.get(EXPECTED_HEAD)
        if what == "lake.merge" and self._has_hook(expected):
            self._check(
                commit.first_parent == expected, "invariant 7: a merge landed on another head"
            )
        for person in self.persons:
            if self._is_below(person.id, before):
                tagged = self.keeps_tags and person.id in self.repository.tags.values()
                self._check(
                    tagged or self._is_below(person.id, now),
                    "invariant 10: a person's commit is gone",
                )

    def _check_content(self, commit: Commit, execution: str) -> None:
        if commit.id == self.ref:
            return
        tree, base = self._tree(commit.id), self._tree(self.ref)
        candidates = [{**base, **changes} for changes in self.results.values()]
        if tree in candidates:
            return
        outside = {key: value for key, value in tree.items() if "person" in key}
        if outside and {k: v for k, v in tree.items() if k not in outside} in candidates:
            self.mixed.add(commit.id)
            return
        self._check(False, f"invariant 1: HEAD mixes results: {sorted(tree)} by {execution}")

    def _completed(self, ref: str) -> None:
        if self.completed == ref:
            return
        self.completed = ref
        self.log(f"  COMPLETED with {ref[:6]}")
        self._check(ref in self.heads, "invariant 3: the output was never HEAD")
        self._check(ref not in self.mixed, "invariant 1: a mixture was completed with")
        commit = self.repository.commit(ref)
        self._check(
            ref == self.ref or commit.first_parent == self.ref,
            "invariant 3: the output does not sit on the input",
        )
        if not self.persons:
            self._check(ref == self.head, "invariant 3: HEAD is not what was completed with")

    def at_the_end(self, lake: InMemoryLake, workflow: Workflow) -> None:
        """When everything is over, what was completed with is what a reader finds."""
        self.observe(workflow)
        if self.completed is not None and not self.persons:
            self._check(self.completed == self.head, "invariant 9: the completed result is gone")
        self._check(
            workflow.status != "RUNNING" or workflow.tasks[-1].status != "IN_PROGRESS",
            "an attempt never ended",
        )

    def _tree(self, commit: str) -> dict[str, bytes]:
        tree: Tree = self.repository.tree(commit)
        return {key: item.content for key, item in tree.items()}

    def _is_below(self, commit: str, head: str) -> bool:
        at: str | None = head
        while at is not None:
            if at == commit:
                return True
            at = self.repository.commit(at).first_parent
        return False

    def _has_hook(self, ref: str | None) -> bool:
        return ref is not None and any(k.startswith("_lakefs") for k in self._tree(self.ref))

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            lines = "\n".join(self.lines[-_LAST_LINES:])
            raise AssertionError(f"{what}\n{lines}")
