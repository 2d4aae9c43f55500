"""Section 6: the staging branch name, unique to the execution and never longer than allowed."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.protocol.identity import (
    Attempt,
    Claim,
    Execution,
    LogicalTask,
    parse_staging_name,
)

ATTEMPT = Attempt(
    workflow_instance_id="w-1",
    task_id="0a1b2c3d-0000-4000-8000-000000000001",
    retry_count=2,
    reference_name="clean_ref",
    seq=7,
    iteration=3,
)


def name_of(attempt: Attempt = ATTEMPT, execution_id: str = "e1") -> str:
    return Execution(Claim(attempt, "claim"), execution_id).staging_branch_name


def test_the_name_says_everything_about_the_execution() -> None:
    assert name_of() == (
        "perago-staging-w-1-clean_ref-seq-7-iteration-3"
        "-task-id-0a1b2c3d-0000-4000-8000-000000000001-retry-2-exec-e1"
    )


@given(reference=st.text(max_size=300), seq=st.integers(0, 10**6), execution_id=st.uuids())
def test_every_name_is_a_valid_branch_id_of_at_most_240_characters_with_whole_ids(
    reference: str, seq: int, execution_id: object
) -> None:
    workflow_id = "4f2c7a90-0000-4000-8000-000000000009"
    attempt = replace(ATTEMPT, workflow_instance_id=workflow_id, reference_name=reference, seq=seq)
    name = name_of(attempt, str(execution_id))
    assert len(name) <= 240
    assert re.fullmatch(r"[0-9A-Za-z_][-0-9A-Za-z_]*", name)
    assert name.startswith(f"perago-staging-{workflow_id}-")
    ids = f"task-id-{ATTEMPT.task_id}-retry-2-exec-{execution_id}"
    assert name.endswith(f"-seq-{seq}-iteration-3-{ids}")
    found = parse_staging_name(name)
    assert found is not None
    assert found.is_licence_of(attempt.logical)


@given(one=st.text(max_size=100), other=st.text(max_size=100))
def test_two_steps_never_share_the_prefix_by_which_licences_are_found(one: str, other: str) -> None:
    prefixes = {
        replace(ATTEMPT.logical, reference_name=name).staging_prefix for name in (one, other)
    }
    assert len(prefixes) == len({one, other})


def test_a_licence_is_of_one_logical_task_alone() -> None:
    found = parse_staging_name(name_of())
    assert found is not None
    task = ATTEMPT.logical
    assert found.is_licence_of(task)
    for change in ({"workflow_instance_id": "w-2"}, {"reference_name": "x"}, {"iteration": 4}):
        assert not found.is_licence_of(replace(task, **change))


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


@pytest.mark.parametrize("part", ["-seq-1-iteration-1-task-id-a-retry-1", "-exec-a", "a"])
def test_a_branch_name_of_any_length_is_read_at_once(part: str) -> None:
    """LakeFS lists the names, and anybody may give a branch one."""
    name = f"{name_of()}{part * 5000}!"
    began = time.monotonic()
    assert parse_staging_name(name) is None
    assert time.monotonic() - began < 1.0
