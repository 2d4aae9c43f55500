"""What is garbage and what is not, without a server."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.protocol.garbage import (
    FoundBranch,
    FoundStagingBranch,
    FoundTag,
    judge_local,
    judge_staging,
    judge_tag,
    local_task_id,
    recognise,
)
from perago.protocol.identity import Attempt, Claim, Execution, parse_staging_name
from perago.protocol.ports import AttemptSnapshot
from perago.protocol.record import Record
from perago.protocol.workspace import Commit

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TASK = "7d2b9c9e-6f3d-4c55-a7ad-0f1f2a3b4c5d"


def execution(**changes: object) -> Execution:
    fields = {
        "workflow_instance_id": "wf-1",
        "task_id": TASK,
        "retry_count": 1,
        "reference_name": "step",
        **changes,
    }
    return Execution(Claim(Attempt(**fields), "our-claim"), uuid.uuid4().hex)  # type: ignore[arg-type]


def branch(of: Execution, *, committed_by: Execution | None = None, days: int = 0) -> FoundBranch:
    """The staging branch of an execution, whose HEAD somebody may have recorded."""
    made_by = Record.of(committed_by, ref="0" * 64, params={}) if committed_by else None
    head = Commit("1" * 64, ("0" * 64,), made_by.metadata() if made_by else {})
    return FoundBranch("repo", of.staging_branch_name, head, NOW - timedelta(days=days))


def staged(*, committed: bool = True, days: int = 0) -> FoundStagingBranch:
    of = execution()
    found = recognise(branch(of, committed_by=of if committed else None, days=days))
    assert found is not None
    return found


@pytest.mark.parametrize("number", ["", "two", "9" * 5000, None])
def test_a_staging_branch_with_a_damaged_record_is_known_by_its_name(number: object) -> None:
    found = branch(of := execution(), committed_by=of)
    found.head.metadata["perago.retry_count"] = number  # type: ignore[assignment]
    staging = recognise(found)
    assert staging is not None
    assert (staging.record, staging.task_id) == (None, TASK)


def task(
    status: str = "IN_PROGRESS", worker_id: str = "our-claim", reason: str = ""
) -> AttemptSnapshot:
    return AttemptSnapshot(status, "wf-1", TASK, 1, worker_id, reason=reason or None)


@given(
    task_id=st.text(st.sampled_from("abcdef0123456789-_"), min_size=1, max_size=40),
    reference=st.text(max_size=300),
    retry=st.integers(0, 1000),
)
def test_every_staging_name_can_be_read_back(task_id: str, reference: str, retry: int) -> None:
    made = execution(task_id=task_id, reference_name=reference, retry_count=retry)
    name = parse_staging_name(made.staging_branch_name)
    assert name is not None
    assert name.is_of(task_id, retry, made.id)


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "perago-staging",
        "perago-staging-experiment",
        "perago-staging-x-seq-0-iteration-0-task-id-t-retry-one-exec-e",
        f"my-{execution().staging_branch_name}",
    ],
)
def test_other_branches_are_not_recognised(name: str) -> None:
    assert recognise(FoundBranch("repo", name, Commit("1" * 64), NOW)) is None


def test_a_branch_without_a_commit_of_its_own_has_no_record() -> None:
    other = execution(task_id="another-task")
    found = recognise(branch(execution(), committed_by=other))
    assert found is not None
    assert (found.record, found.task_id) == (None, TASK)


def test_a_branch_whose_name_and_record_disagree_is_not_recognised() -> None:
    of = execution()
    other = Execution(Claim(Attempt("wf-1", "another-task", 1, "step"), "claim"), of.id)
    assert recognise(branch(of, committed_by=other)) is None


@pytest.mark.parametrize("status", ["SCHEDULED", "IN_PROGRESS"])
@pytest.mark.parametrize("committed", [True, False])
def test_the_branch_of_a_live_attempt_stays(status: str, committed: bool) -> None:
    verdict = judge_staging(staged(committed=committed), task(status), NOW)
    assert (verdict.garbage, verdict.reason) == (False, f"its attempt is {status}")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    "status",
    ["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT", "CANCELED", "SKIPPED"],
)
def test_the_branch_of_a_finished_attempt_is_garbage(status: str, committed: bool) -> None:
    verdict = judge_staging(staged(committed=committed), task(status), NOW)
    assert verdict.garbage
    assert status in verdict.reason


def test_the_branch_of_a_task_that_conductor_forgot_is_garbage() -> None:
    verdict = judge_staging(staged(days=3), None, NOW)
    assert verdict.garbage
    assert verdict.reason == f"Conductor has no task {TASK}; committed 3 days ago"


def test_the_branch_of_a_rerun_is_garbage_when_its_claim_is_known() -> None:
    again = task(worker_id="another-claim")
    assert judge_staging(staged(), again, NOW).garbage
    assert not judge_staging(staged(committed=False), again, NOW).garbage


@pytest.mark.parametrize(("days", "garbage"), [(0, False), (6, False), (8, True)])
@pytest.mark.parametrize("error", ["UnknownOutcomeError", "MixedPublicationError"])
def test_evidence_is_listed_with_its_age_and_kept_for_a_week(
    error: str, days: int, garbage: bool
) -> None:
    failed = task("FAILED", reason=f"{error}: the reply was lost")
    verdict = judge_staging(staged(days=days), failed, NOW)
    assert verdict.garbage is garbage
    assert "evidence of an unknown outcome" in verdict.reason
    assert ("0 hours" if days == 0 else f"{days} days") in verdict.reason


def test_a_local_run_is_recognised_and_judged_by_its_time() -> None:
    for days, garbage in [(0, False), (6, False), (8, True)]:
        started = NOW - timedelta(days=days)
        of = execution(task_id=local_task_id(started, uuid.uuid4().hex))
        found = recognise(branch(of))
        assert found is not None
        assert found.local_start == started
        assert judge_local(started, NOW).garbage is garbage
    assert staged().local_start is None


@pytest.mark.parametrize(
    ("day", "garbage"), [("20260310", False), ("20260303", False), ("20260302", True)]
)
def test_a_tag_is_garbage_when_it_is_older_than_seven_days(day: str, garbage: bool) -> None:
    verdict = judge_tag(FoundTag("repo", f"perago-replaced-{day}-{'a' * 64}", "a" * 64), NOW)
    assert verdict is not None
    assert verdict.garbage is garbage


@pytest.mark.parametrize(
    "name",
    [
        "v1.0",
        f"perago-replaced-20261399-{'a' * 64}",
        f"perago-replaced-20200101-{'b' * 64}",
        "perago-replaced-20200101-abc",
    ],
)
def test_other_tags_are_not_judged(name: str) -> None:
    assert judge_tag(FoundTag("repo", name, "a" * 64), NOW) is None
