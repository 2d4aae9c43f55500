from __future__ import annotations

from typing import Any

import pytest

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
)

BUDGET: dict[str, Any] = {
    "observed_merge_p99_seconds": 2,
    "safety_margin_seconds": 1,
    "lakefs_merge_timeout_seconds": 5,
    "conductor_completion_timeout_seconds": 10,
    "heartbeat_interval_seconds": 20,
    "worker_shutdown_grace_seconds": 30,
}


def wrong(kind: Any, **values: Any) -> Any:
    """Values that a type checker would refuse; authors without one write them all the same."""
    return kind(**values)


def test_the_defaults_are_fine() -> None:
    assert list(TaskControls().problems()) == []
    assert list(TaskControls(publish_budget=PublishBudget(**BUDGET)).problems()) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (wrong(RetryPolicy, count=-1), "RetryPolicy.count must be a whole number, 0 or more"),
        (wrong(RetryPolicy, count=True), "RetryPolicy.count"),
        (wrong(RetryPolicy, delay_seconds=1.5), "RetryPolicy.delay_seconds"),
        (wrong(RetryPolicy, backoff_scale_factor=0), "1 or more, not 0"),
        (wrong(RetryPolicy, logic="RANDOM"), "FIXED, EXPONENTIAL_BACKOFF, LINEAR_BACKOFF"),
        (wrong(RetryPolicy, logic=["FIXED"]), "RetryPolicy.logic must be one of"),
        (wrong(TimeoutPolicy, response_seconds=0), "TimeoutPolicy.response_seconds"),
        (wrong(TimeoutPolicy, total_seconds="60"), "TimeoutPolicy.total_seconds"),
        (wrong(TimeoutPolicy, total_seconds=599), "must be 0 or at least response_seconds"),
        (wrong(TimeoutPolicy, body_seconds=0), "TimeoutPolicy.body_seconds"),
        (wrong(TimeoutPolicy, body_seconds="soon"), "not 'soon'"),
        (wrong(TimeoutPolicy, attempt_seconds=0), "TimeoutPolicy.attempt_seconds"),
        (wrong(TimeoutPolicy, attempt_seconds="soon"), "not 'soon'"),
        (wrong(TimeoutPolicy, attempt_seconds=True), "not True"),
        (wrong(TimeoutPolicy, body_seconds=9, attempt_seconds=8), "body_seconds must not be"),
        (wrong(TimeoutPolicy, body_seconds=float("nan")), "not nan"),
        (wrong(TimeoutPolicy, body_seconds=float("inf")), "not inf"),
        (wrong(TimeoutPolicy, action="PANIC"), "RETRY, TIME_OUT_WF, ALERT_ONLY"),
        (wrong(ExecutionLimits, concurrent=0), "ExecutionLimits.concurrent"),
        (wrong(ExecutionLimits, rate="5"), "ExecutionLimits.rate"),
        (wrong(ExecutionLimits, rate_window_seconds=0), "ExecutionLimits.rate_window_seconds"),
        (wrong(PublishBudget, **{**BUDGET, "lakefs_merge_timeout_seconds": 2}), "at least 3"),
        (wrong(PublishBudget, **{**BUDGET, "heartbeat_interval_seconds": 0}), "must be above 0"),
        (wrong(TaskControls, retry=3), "TaskControls.retry must be a RetryPolicy, not 3"),
        (wrong(TaskControls, limits=None), "TaskControls.limits must be a ExecutionLimits"),
        (wrong(TaskControls, recovery="hope"), "replace, adopt"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(value: Any, text: str) -> None:
    assert text in "\n".join(value.problems())


def test_every_wrong_number_of_a_budget_is_named() -> None:
    bad = {**BUDGET, "safety_margin_seconds": -1, "observed_merge_p99_seconds": float("nan")}
    problems = list(wrong(PublishBudget, **bad).problems())
    assert len(problems) == 2
    assert "observed_merge_p99_seconds" in problems[0]
    assert "safety_margin_seconds" in problems[1]


def test_problems_of_all_parts_are_reported_together() -> None:
    controls = TaskControls(RetryPolicy(-1), TimeoutPolicy(0), ExecutionLimits(0))
    assert len(list(controls.problems())) == 3
