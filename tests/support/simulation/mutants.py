"""Protections of the protocol, each taken away: a simulation that is worth its time notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perago.protocol import fences, publish, steps
from perago.protocol.fences import MergeStaged
from perago.protocol.licences import Licences
from perago.protocol.publish import Publisher
from perago.protocol.workspace import StagedWorkspace
from perago.testing.faults import BranchUpdate
from perago.testing.lake import InMemoryLake
from perago.worker import report

Mutation = Callable[[pytest.MonkeyPatch], None]


def no_attempt_fence(patch: pytest.MonkeyPatch) -> None:
    """Every attempt passes for the current one."""
    patch.setattr(fences, "assert_current_attempt_snapshot", lambda claim, fresh: None)


def no_publish_fence(patch: pytest.MonkeyPatch) -> None:
    """Changes are merged wherever the target is."""
    plan = fences.build_workspace_publication_plan

    def always_merge(*, ref: str, changed: bool, **rest: Any) -> Any:
        return MergeStaged(ref) if changed else plan(ref=ref, changed=changed, **rest)

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


_LATE: dict[str, Any] = {"calls": 0.0, "moves": 0.3, "person": 0.0, "operator": 0.0}
# An operator has the task done again while a request of it is still landing.
_REOPENED = {**_LATE, "operator": 0.3}
_PERSON: dict[str, Any] = {"hard": False, "person": 0.5, "moves": 0.15, "operator": 0.1}

# Each with the kind of schedule in which the protection matters. What needs a pause of one step at
# one moment (a licence made after the last fence, the own licence kept after a lost reply, HEAD not
# read again before a relocation) is left to the exhaustive model (docs/model.md).
MUTATIONS: list[tuple[Mutation, dict[str, Any]]] = [
    (no_attempt_fence, {"timeouts": 0.12, "person": 0.0}),
    (no_publish_fence, _LATE),
    (no_withdrawal, _LATE),
    (no_wait, _REOPENED),
    (no_wait_for_a_tag, _REOPENED),
    (sources_by_commit, _LATE),
    (no_read_back, _PERSON),
    (no_claim_check, {"operator": 0.3, "person": 0.0}),
    (no_provenance, _PERSON),
]


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Within the block the protection is gone."""
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        yield
