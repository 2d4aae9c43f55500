"""Metrics from the events and outcomes of attempts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from perago.errors import (
    MixedPublicationError,
    PeragoError,
    PublishFenceError,
    StaleAttemptError,
    TaskFailed,
    TaskTerminalError,
    UnknownOutcomeError,
)
from perago.observability.metrics import PUBLISH_BUCKETS, AttemptEnd, WorkerMetrics
from perago.protocol.events import PhaseEvent, Phases
from perago.protocol.outcome import Completed, failure_of

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def value(metrics: WorkerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"perago_{name}", labels)


class TickingClock:
    """Each look at it is a second later."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError

    def today(self) -> str:
        raise AssertionError


def test_a_worker_shows_zeros_before_its_first_attempt() -> None:
    metrics = WorkerMetrics(["clean"])
    for end in AttemptEnd:
        assert value(metrics, "attempts_total", task="clean", outcome=end) == 0
    assert value(metrics, "unknown_outcomes_total", task="clean") == 0
    assert value(metrics, "executor_restarts_total") == 0
    assert value(metrics, "busy_slots") == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TaskFailed("x"), "failed"),
        (ValueError("x"), "failed"),
        (UnknownOutcomeError("x"), "failed"),
        (TaskTerminalError("x"), "terminal"),
        (StaleAttemptError("x"), "stale"),
    ],
)
def test_an_attempt_is_counted_by_how_it_ended(error: Exception, outcome: str) -> None:
    metrics = WorkerMetrics()
    metrics.finished("clean", failure_of(error))
    assert value(metrics, "attempts_total", task="clean", outcome=outcome) == 1
    metrics.finished("clean", Completed({}))
    assert value(metrics, "attempts_total", task="clean", outcome="completed") == 1


def test_what_only_the_supervisor_sees_has_methods_of_its_own() -> None:
    metrics = WorkerMetrics()
    metrics.stale("t")
    metrics.handed_back("t")
    metrics.died("t")
    metrics.undelivered("t")
    metrics.poll_failed("t")
    metrics.executor_restarted()
    metrics.set_slots(4)
    metrics.set_busy_slots(3)
    for outcome in ("stale", "handed_back", "died"):
        assert value(metrics, "attempts_total", task="t", outcome=outcome) == 1
    assert value(metrics, "undelivered_results_total", task="t") == 1
    assert value(metrics, "poll_failures_total", task="t") == 1
    assert value(metrics, "executor_restarts_total") == 1
    assert value(metrics, "slots") == 4
    assert value(metrics, "busy_slots") == 3


def test_phases_of_the_protocol_are_timed_whether_they_end_or_fail() -> None:
    metrics = WorkerMetrics()
    phases = Phases(lambda event: metrics.observe("t", event), TickingClock())
    with phases("body"):
        pass
    with pytest.raises(KeyError), phases("body"):
        raise KeyError
    assert value(metrics, "phase_seconds_count", task="t", phase="body") == 2
    assert value(metrics, "phase_seconds_sum", task="t", phase="body") == 2.0


def test_bytes_and_objects_are_counted_when_they_have_moved() -> None:
    metrics = WorkerMetrics()
    staged = {"uploads": 2, "upload_bytes": 70, "deletes": 3, "unchanged": 9}
    for event in (
        PhaseEvent("phase_ended", "download", 1.0, {"objects": 5, "bytes": 1000}),
        PhaseEvent("phase_ended", "diff", 1.0, staged),
        PhaseEvent("phase_failed", "stage", 1.0, staged | {"error": "BackendError"}),
        PhaseEvent("phase_ended", "stage", 1.0, staged),
    ):
        metrics.observe("t", event)
    assert value(metrics, "transfer_bytes_total", task="t", direction="download") == 1000
    assert value(metrics, "transfer_bytes_total", task="t", direction="upload") == 70
    assert value(metrics, "transfer_objects_total", task="t", direction="download") == 5
    assert value(metrics, "transfer_objects_total", task="t", direction="upload") == 2
    assert value(metrics, "transfer_objects_total", task="t", direction="delete") == 3


def test_what_came_from_the_object_cache_is_counted_apart_from_what_moved() -> None:
    metrics = WorkerMetrics()
    counts = {"cache_hits": 4, "cache_hit_bytes": 900, "cache_misses": 1, "cache_evictions": 2}
    downloaded = {"objects": 5, "bytes": 1000, **counts}
    metrics.observe("t", PhaseEvent("phase_ended", "download", 1.0, downloaded))
    metrics.observe("t", PhaseEvent("phase_ended", "stage", 1.0, {"cache_evictions": 3}))
    assert value(metrics, "transfer_bytes_total", task="t", direction="download") == 100
    assert value(metrics, "transfer_objects_total", task="t", direction="download") == 1
    assert value(metrics, "object_cache_requests_total", task="t", result="hit") == 4
    assert value(metrics, "object_cache_requests_total", task="t", result="miss") == 1
    assert value(metrics, "object_cache_hit_bytes_total", task="t") == 900
    assert value(metrics, "object_cache_evictions_total", task="t") == 5


def test_what_the_attempt_before_left_is_counted_apart_from_what_moved() -> None:
    metrics = WorkerMetrics(["t"])
    counts = {"cache_hits": 1, "cache_hit_bytes": 200, "kept_files": 3, "kept_bytes": 700}
    downloaded = {"objects": 5, "bytes": 1000, **counts}
    metrics.observe("t", PhaseEvent("phase_ended", "download", 1.0, downloaded))
    assert value(metrics, "transfer_bytes_total", task="t", direction="download") == 100
    assert value(metrics, "transfer_objects_total", task="t", direction="download") == 1
    assert value(metrics, "kept_files_total", task="t") == 3


@pytest.mark.parametrize(
    ("phase", "error", "fence"),
    [
        ("first_fence", StaleAttemptError, "attempt"),
        ("second_fence", StaleAttemptError, "attempt"),
        ("publish", PublishFenceError, "publish"),
        ("publish", MixedPublicationError, "publish"),
    ],
)
def test_a_fence_that_stops_an_attempt_is_counted_by_its_kind(
    phase: str, error: type[PeragoError], fence: str
) -> None:
    metrics = WorkerMetrics(["t"])
    phases = Phases(lambda event: metrics.observe("t", event), TickingClock())
    with pytest.raises(error), phases(phase):
        raise error("x")
    rejected = {
        kind: value(metrics, "fence_rejections_total", task="t", fence=kind)
        for kind in ("attempt", "publish")
    }
    assert rejected == {"attempt": 0, "publish": 0} | {fence: 1}
    assert value(metrics, "publish_seconds_count", task="t", how="unknown") is None


def test_warnings_of_guardrails_are_counted() -> None:
    metrics = WorkerMetrics(["t"])
    assert value(metrics, "guardrail_warnings_total", task="t") == 0
    metrics.observe("t", PhaseEvent("guardrail_warned", "pre_guardrails", None, {"message": "x"}))
    assert value(metrics, "guardrail_warnings_total", task="t") == 1


def test_an_author_s_exception_is_no_rejection_whatever_its_name() -> None:
    metrics = WorkerMetrics(["t"])
    details = {"error": "PublishFenceError"}
    metrics.observe("t", PhaseEvent("phase_failed", "body", 1.0, details))
    assert value(metrics, "fence_rejections_total", task="t", fence="publish") == 0


def test_publish_times_are_kept_by_what_was_done_and_unknown_ones_are_kept_too() -> None:
    metrics = WorkerMetrics(["t"])
    merged = {"how": "merged", "ref": "abc", "abandoned": None}
    metrics.observe("t", PhaseEvent("phase_ended", "publish", 0.2, merged))
    metrics.observe("t", PhaseEvent("phase_ended", "publish", 0.01, {"how": "unchanged"}))
    metrics.observe("t", PhaseEvent("reply_lost", "publish", None, {"error": "x"}))
    unknown = {"error": "UnknownOutcomeError"}
    metrics.observe("t", PhaseEvent("phase_failed", "publish", 70.0, unknown))
    for how, seconds in (("merged", 0.2), ("unchanged", 0.01), ("unknown", 70.0)):
        assert value(metrics, "publish_seconds_count", task="t", how=how) == 1
        assert value(metrics, "publish_seconds_sum", task="t", how=how) == seconds
    assert value(metrics, "publish_seconds_bucket", task="t", how="merged", le="0.15") == 0
    assert value(metrics, "publish_seconds_bucket", task="t", how="merged", le="0.2") == 1
    assert value(metrics, "unknown_outcomes_total", task="t") == 1
    assert value(metrics, "lost_replies_total", task="t") == 1


def test_an_unknown_commit_is_counted_but_is_no_publish_time() -> None:
    metrics = WorkerMetrics()
    metrics.observe("t", PhaseEvent("phase_failed", "stage", 3.0, {"error": "UnknownOutcomeError"}))
    assert value(metrics, "unknown_outcomes_total", task="t") == 1
    assert value(metrics, "publish_seconds_count", task="t", how="unknown") is None


def test_publish_buckets_reach_from_5_ms_to_300_s_without_a_wide_gap() -> None:
    assert PUBLISH_BUCKETS[0] == 0.005
    assert PUBLISH_BUCKETS[-1] == 300
    ratios = [b / a for a, b in pairwise(PUBLISH_BUCKETS)]
    assert all(1 < ratio <= 5 / 3 + 1e-9 for ratio in ratios)


def test_two_workers_in_one_process_do_not_share_a_registry() -> None:
    first, second = WorkerMetrics(["t"]), WorkerMetrics(["t"])
    first.died("t")
    assert value(second, "attempts_total", task="t", outcome="died") == 0


def test_the_documentation_lists_every_end_of_an_attempt() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"| `{end}` |" in text for end in AttemptEnd)
