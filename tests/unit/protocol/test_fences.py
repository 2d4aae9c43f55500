"""Section 7: both fences as pure values, and the lease."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perago.errors import PublishFenceError, StaleAttemptError
from perago.protocol.fences import (
    AttemptFence,
    CompleteAtInput,
    Lease,
    MergeStaged,
    PublicationPlan,
    ReplaceAbandoned,
    ReturnToInput,
    assert_current_attempt_snapshot,
    build_workspace_publication_plan,
)
from perago.protocol.identity import Attempt, Claim
from perago.protocol.ports import AttemptSnapshot
from perago.protocol.workspace import Commit
from perago.testing import InMemoryConductor, ManualClock, TaskSettings, preceded_by

CLAIM = Claim(Attempt("w-1", "t-1", 2, "step"), "claim-1")
FRESH = AttemptSnapshot("IN_PROGRESS", "w-1", "t-1", 2, "claim-1")


def test_an_unchanged_attempt_passes() -> None:
    assert_current_attempt_snapshot(CLAIM, FRESH)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "SCHEDULED"),
        ("status", "COMPLETED"),
        ("status", "FAILED"),
        ("status", "TIMED_OUT"),
        ("status", "CANCELED"),
        ("workflow_instance_id", "w-2"),
        ("task_id", "t-2"),
        ("retry_count", 3),
        ("retry_count", 1),
        ("worker_id", "claim-2"),
        ("worker_id", None),
    ],
)
def test_each_field_alone_makes_an_attempt_stale(field: str, value: object) -> None:
    with pytest.raises(StaleAttemptError, match="no longer current"):
        assert_current_attempt_snapshot(CLAIM, replace(FRESH, **{field: value}))  # type: ignore[arg-type]


AT_INPUT = Commit("ref", ("older",))
ABANDONED = Commit("next", ("ref",))
MERGED_IN = Commit("merge", ("ref", "side"))


@pytest.mark.parametrize(
    ("head", "changed", "plan"),
    [
        (AT_INPUT, True, MergeStaged()),
        (AT_INPUT, False, CompleteAtInput()),
        (ABANDONED, True, ReplaceAbandoned(ABANDONED)),
        (ABANDONED, False, ReturnToInput(ABANDONED)),
        (MERGED_IN, True, ReplaceAbandoned(MERGED_IN)),
    ],
)
def test_the_publication_plan_is_the_table(
    head: Commit, changed: bool, plan: PublicationPlan
) -> None:
    assert build_workspace_publication_plan(ref="ref", head=head, changed=changed) == plan


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize(
    "head",
    [
        Commit("older", ()),
        Commit("two-on", ("next",)),
        Commit("second-parent", ("other", "ref")),
        Commit("root", ()),
    ],
    ids=lambda commit: commit.id,
)
def test_any_other_head_has_no_plan(head: Commit, changed: bool) -> None:
    with pytest.raises(PublishFenceError, match="neither the input"):
        build_workspace_publication_plan(ref="ref", head=head, changed=changed, branch="main")


def test_a_lease_bounds_a_request_by_what_is_left() -> None:
    clock = ManualClock()
    lease = Lease(clock, expires_at=10)
    assert lease.bound(60, "merge") == 10
    assert lease.bound(3, "merge") == 3
    clock.advance(9.5)
    assert lease.bound(60, "merge") == 0.5
    clock.advance(0.3)
    with pytest.raises(StaleAttemptError, match="not enough to merge"):
        lease.bound(60, "merge")


def fence_of(seconds: float) -> tuple[AttemptFence, ManualClock, InMemoryConductor]:
    clock = ManualClock()
    conductor = InMemoryConductor(clock)
    conductor.start(TaskSettings("task", response_timeout_seconds=seconds), {})
    delivery = conductor.poll("task", "claim")
    assert delivery is not None
    return AttemptFence(conductor, delivery.claim, clock), clock, conductor


def test_a_lease_is_counted_from_before_its_renewal() -> None:
    fence, clock, conductor = fence_of(30)
    conductor.faults.inject("attempts.renew", preceded_by(lambda: clock.advance(4)))
    assert fence.check().expires_at == 30


def test_without_a_response_timeout_a_lease_does_not_end() -> None:
    fence, _, _ = fence_of(0)
    assert fence.check().expires_at == math.inf
