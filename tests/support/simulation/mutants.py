"""Protections of the protocol, each taken away: a simulation that is worth its time notices."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perago.protocol import fences, file_task, publish, steps
from perago.protocol.fences import MergeStaged
from perago.protocol.licences import Licences
from perago.protocol.publish import Publisher
from perago.protocol.workspace import StagedWorkspace
from perago.testing.faults import BranchUpdate
from perago.testing.lake import InMemoryLake
from perago.transfer import sweep
from perago.worker import report
from support.simulation import kinds
from support.simulation.kinds import Kind

Mutation = Callable[[pytest.MonkeyPatch], None]


def no_attempt_fence(patch: pytest.MonkeyPatch) -> None:
    """Every attempt passes for the current one."""
    patch.setattr(fences, "assert_current_attempt_snapshot", lambda claim, fresh: None)


def no_publish_fence(patch: pytest.MonkeyPatch) -> None:
    """Changes are merged wherever the target is."""
    plan = fences.build_workspace_publication_plan

    def always_merge(*, ref: str, changed: bool, **rest: Any) -> Any:
        return MergeStaged() if changed else plan(ref=ref, changed=changed, **rest)

    patch.setattr(publish, "build_workspace_publication_plan", always_merge)
    patch.setattr(steps, "build_workspace_publication_plan", lambda **_: None)


def no_withdrawal(patch: pytest.MonkeyPatch) -> None:
    """Earlier executions keep their licences."""
    patch.setattr(Licences, "withdraw_others", lambda self, repository: None)


def no_wait(patch: pytest.MonkeyPatch) -> None:
    """HEAD is read right after a withdrawal."""
    patch.setattr(Licences, "await_landing", lambda self: False)


def no_wait_for_a_tag(patch: pytest.MonkeyPatch) -> None:
    """A withdrawal that somebody else made does not count."""
    patch.setattr(Licences, "_tags", lambda self, repository: iter(()))


def sources_by_commit(patch: pytest.MonkeyPatch) -> None:
    """A merge names the staged commit, which nothing can withdraw."""

    def merge(
        self: InMemoryLake,
        staged: StagedWorkspace,
        target: str,
        *,
        message: str,
        metadata: dict[str, str],
        timeout: float,
    ) -> str:
        def resolve() -> Callable[[], str]:
            repo = self.repository(staged.repository)

            def write() -> str:
                return self._merge(repo, staged.commit, repo.branch(target), target, metadata)

            return write

        return self.faults.run("lake.merge", BranchUpdate(resolve))

    patch.setattr(InMemoryLake, "merge", merge)


def no_read_back(patch: pytest.MonkeyPatch) -> None:
    """What was published is believed and not looked at."""
    patch.setattr(Publisher, "_read_back", lambda self, merged, staged: None)


def no_claim_check(patch: pytest.MonkeyPatch) -> None:
    """An outcome is posted over whatever claim the task has by then."""
    patch.setattr(report, "_is_ours", lambda claim, fresh: True)


def no_provenance(patch: pytest.MonkeyPatch) -> None:
    """Any commit one past the input passes for an abandoned publication."""
    patch.setattr(publish, "assert_replaceable", lambda head, attempt, replacement: None)
    patch.setattr(steps, "assert_replaceable", lambda head, attempt, replacement: None)


def no_second_fence(patch: pytest.MonkeyPatch) -> None:
    """The staging branch of changes, their licence, is made after the last attempt fence."""
    fence = 'with phases("second_fence"):\n            lease = steps.fence.check()'
    _rewrite(patch, file_task, "_publish", (fence, "pass"))


def head_before_withdrawal(patch: pytest.MonkeyPatch) -> None:
    """The plan comes from a HEAD that was read while others still had their licences."""
    look = "head = self.lake.get_head(space.repository, space.branch)\n    "
    withdrawal = "self.licences.withdraw_others(space.repository)"
    _rewrite(patch, Publisher, "publish", (look, ""), (withdrawal, look + withdrawal))


def licence_after_fence(patch: pytest.MonkeyPatch) -> None:
    """A no-op makes its licence when it relocates, after the last attempt fence."""
    request = "        self.lake.relocate(licence.branch"
    _rewrite(
        patch,
        Publisher,
        "_relocate",
        ("    licence.ensure()\n", ""),
        (request, f"        licence.ensure()\n{request}"),
    )


def no_own_withdrawal(patch: pytest.MonkeyPatch) -> None:
    """After a lost reply an execution keeps its licence and only reads."""
    patch.setattr(Licences, "withdraw_own", lambda self, licence, commit: None)


def no_wait_after_own_withdrawal(patch: pytest.MonkeyPatch) -> None:
    """After a lost reply HEAD is read once."""
    _rewrite(patch, Publisher, "_resolve", ("+ self.landing_seconds", ""))


def tags_before_branches(patch: pytest.MonkeyPatch) -> None:
    """Earlier withdrawals are looked for before the licences that are still there."""
    look = "if any(is_withdrawn_tag_of(task, tag) for tag in self._tags(repository)):"
    note = "self._withdrawn_at = self._clock.monotonic()"
    listing = "for branch in self._lake.list_branches("
    _rewrite(
        patch,
        Licences,
        "withdraw_others",
        (f"    {look}\n        {note}\n", ""),
        (f"    {listing}", f"    {look}\n        {note}\n    {listing}"),
    )


def reading_that_ends_after_the_wait(patch: pytest.MonkeyPatch) -> None:
    """A look at HEAD counts as the last one if its answer comes when the time is over."""
    _rewrite(
        patch,
        Publisher,
        "_resolve",
        ("        is_over = self.clock.monotonic() >= deadline\n", ""),
        ("if is_over:", "if self.clock.monotonic() >= deadline:"),
    )


def no_second_look(patch: pytest.MonkeyPatch) -> None:
    """HEAD is not read again before a relocation."""
    _rewrite(patch, Publisher, "_relocate", ("if head.id != abandoned.id:", "if False:"))


def no_tag(patch: pytest.MonkeyPatch) -> None:
    """What is replaced is not kept."""
    _rewrite(
        patch, Publisher, "_relocate", ("self.lake.tag(space.repository, tag, abandoned.id)", "")
    )


def no_lock(patch: pytest.MonkeyPatch) -> None:
    """A sweep does not ask who holds an attempt directory."""
    patch.setattr(sweep, "lock_within", lambda descriptor, seconds, pause: True)


def _rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, *edits: tuple[str, str]) -> None:
    """Put a function in its place whose text is edited; each text to replace is there once."""
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    for old, new in edits:
        assert text.count(old) == 1, f"{name} has changed; this mutation must follow: {old}"
        text = text.replace(old, new)
    module = vars(sys.modules[function.__module__])
    made: dict[str, Any] = {}
    code = compile(text, f"<{name}, mutated>", "exec")
    exec(code, module, made)  # noqa: S102  a text of this repository
    patch.setattr(owner, name, made[name])


# Each with the kind of schedule in which the protection matters.
MUTATIONS: list[tuple[Mutation, Kind]] = [
    (no_attempt_fence, {"timeouts": 0.12, "person": 0.0}),
    (no_publish_fence, kinds.LATE),
    (no_withdrawal, kinds.LATE),
    (no_wait, kinds.REOPENED),
    (no_wait_for_a_tag, kinds.REOPENED),
    (sources_by_commit, kinds.LATE),
    (no_read_back, kinds.PERSON_BEFORE_MERGE),
    (no_claim_check, {"operator": 0.3, "person": 0.0}),
    (no_provenance, kinds.PERSON),
    (no_second_fence, kinds.FROZEN_AND_REOPENED),
    (head_before_withdrawal, {**kinds.REOPENED, "operations": 1}),
    (licence_after_fence, kinds.FROZEN_PAST_LEASE),
    (no_own_withdrawal, kinds.NO_CLEANUP),
    (no_wait_after_own_withdrawal, kinds.LATE),
    (tags_before_branches, kinds.FROZEN_AT_WITHDRAWALS),
    (reading_that_ends_after_the_wait, kinds.SLOW_LOOKS),
    (no_second_look, kinds.PERSON_BEFORE_RELOCATION),
    (no_tag, {**kinds.PERSON, "replacement": "head-state"}),
    (no_lock, {"sweeps": 0.1}),
]


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Within the block the protection is gone."""
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        yield
