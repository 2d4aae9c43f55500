"""Section 6: the staging branch name, unique to the execution and never longer than allowed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.protocol.identity import Attempt, Claim, Execution, LogicalTask

ATTEMPT = Attempt(
    workflow_instance_id="w-1",
    task_id="0a1b2c3d-0000-4000-8000-000000000001",
    retry_count=2,
    reference_name="clean_ref",
    seq=7,
    iteration=3,
    workflow_name="nightly",
)


def name_of(attempt: Attempt = ATTEMPT, execution_id: str = "e1") -> str:
    return Execution(Claim(attempt, "claim"), execution_id).staging_branch_name


def test_the_name_says_everything_about_the_execution() -> None:
    assert name_of() == (
        "perago-staging-nightly-clean_ref-seq-7-iteration-3"
        "-task-id-0a1b2c3d-0000-4000-8000-000000000001-retry-2-exec-e1"
    )


@given(
    workflow=st.text(max_size=300),
    reference=st.text(max_size=300),
    seq=st.integers(0, 10**6),
    execution_id=st.uuids(),
)
def test_every_name_is_a_valid_branch_id_of_at_most_240_characters_with_whole_ids(
    workflow: str, reference: str, seq: int, execution_id: object
) -> None:
    attempt = replace(ATTEMPT, workflow_name=workflow, reference_name=reference, seq=seq)
    name = name_of(attempt, str(execution_id))
    assert len(name) <= 240
    assert re.fullmatch(r"[0-9A-Za-z_][-0-9A-Za-z_]*", name)
    ids = f"task-id-{ATTEMPT.task_id}-retry-2-exec-{execution_id}"
    assert name.endswith(f"-seq-{seq}-iteration-3-{ids}")


@pytest.mark.parametrize("field", ["workflow_name", "reference_name"])
def test_long_names_are_cut_with_a_hash_that_keeps_them_apart(field: str) -> None:
    one, two = (
        name_of(replace(ATTEMPT, **{field: "x" * 300 + end}))  # type: ignore[arg-type]
        for end in ("1", "2")
    )
    assert len(one) == len(two) == 240
    assert one != two


def test_a_short_name_is_not_cut_because_the_other_is_long() -> None:
    assert "-nightly-" in name_of(replace(ATTEMPT, reference_name="x" * 300))
    assert "-clean_ref-" in name_of(replace(ATTEMPT, workflow_name="x" * 300))


def test_two_executions_of_one_claim_have_two_branches() -> None:
    assert name_of(execution_id="e1") != name_of(execution_id="e2")


def test_an_id_that_leaves_no_room_is_refused_and_never_cut() -> None:
    with pytest.raises(ValueError, match="too long"):
        name_of(replace(ATTEMPT, task_id="t" * 240))


def test_attempts_of_one_step_share_their_logical_task() -> None:
    retried = replace(ATTEMPT, task_id="other", retry_count=3)
    assert retried.logical == ATTEMPT.logical == LogicalTask("w-1", "clean_ref", 3)
    assert str(ATTEMPT.logical) == "w-1/clean_ref/3"
    assert replace(ATTEMPT, iteration=4).logical != ATTEMPT.logical
