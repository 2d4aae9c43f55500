"""Budget arithmetic: from a histogram to a proposal that its own checks accept."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.errors import BackendError, BackendUnavailableError, ConfigurationError
from perago.observability.health import HealthServer
from perago.observability.metrics import PUBLISH_BUCKETS, WorkerMetrics
from perago.operations.budget import (
    LEAST_OBSERVATIONS,
    PublishTimes,
    Refusal,
    as_python,
    fetch_metrics,
    propose_budget,
    read_publish_times,
)
from perago.protocol.events import PhaseEvent
from perago.settings import Address
from perago.tasks.controls import PublishBudget
from support.waiting import joined

seconds_lists = st.lists(st.floats(0, 300), min_size=LEAST_OBSERVATIONS, max_size=300)


def worker(*seconds: float, how: str = "merged", task: str = "clean") -> WorkerMetrics:
    metrics = WorkerMetrics([task])
    for value in seconds:
        metrics.observe(task, PhaseEvent("phase_ended", "publish", value, {"how": how}))
    return metrics


def times(metrics: WorkerMetrics, task: str = "clean") -> PublishTimes:
    return read_publish_times(metrics.render().decode()).get(task, PublishTimes())


@settings(max_examples=40)
@given(seconds_lists)
def test_p99_is_the_smallest_bucket_bound_that_99_of_100_did_not_exceed(
    seconds: list[float],
) -> None:
    p99 = times(worker(*seconds)).p99()
    assert p99 in PUBLISH_BUCKETS
    assert sum(value <= p99 for value in seconds) * 100 >= len(seconds) * 99
    below = [bound for bound in PUBLISH_BUCKETS if bound < p99]
    if below:
        assert sum(value <= below[-1] for value in seconds) * 100 < len(seconds) * 99


@settings(max_examples=40)
@given(seconds_lists, st.integers(1, 100_000))
def test_a_proposal_passes_the_checks_of_a_task_definition(
    seconds: list[float], response: int
) -> None:
    proposed = propose_budget(times(worker(*seconds)), response)
    assert isinstance(proposed, PublishBudget)
    assert list(proposed.problems()) == []
    assert proposed.heartbeat_interval_seconds <= max(response / 3 + 0.05, 0.3)
    assert proposed.worker_shutdown_grace_seconds >= (
        proposed.lakefs_merge_timeout_seconds + proposed.conductor_completion_timeout_seconds
    )


def test_a_proposal_follows_the_documented_rules() -> None:
    assert propose_budget(times(worker(*[0.12] * 99, 250.0)), 600) == PublishBudget(
        observed_merge_p99_seconds=0.15,
        safety_margin_seconds=1.0,
        lakefs_merge_timeout_seconds=5.0,
        conductor_completion_timeout_seconds=30.0,
        heartbeat_interval_seconds=30.0,
        worker_shutdown_grace_seconds=35.0,
    )
    assert propose_budget(times(worker(*[18.0] * 50)), 30) == PublishBudget(
        observed_merge_p99_seconds=20.0,
        safety_margin_seconds=20.0,
        lakefs_merge_timeout_seconds=40.0,
        conductor_completion_timeout_seconds=30.0,
        heartbeat_interval_seconds=10.0,
        worker_shutdown_grace_seconds=70.0,
    )


def test_a_value_on_a_bound_belongs_to_the_bucket_it_ends() -> None:
    assert times(worker(*[0.5] * 20)).p99() == 0.5


@pytest.mark.parametrize("count", [0, 1, 19])
def test_too_few_publications_are_refused_with_their_number(count: int) -> None:
    refused = propose_budget(times(worker(*[0.1] * count)), 600)
    assert refused == Refusal(f"{count} publications were measured; a proposal needs 20")


def test_times_beyond_the_end_of_the_histogram_are_refused() -> None:
    refused = propose_budget(times(worker(*[0.1] * 98, 301.0, 400.0)), 600)
    assert isinstance(refused, Refusal)
    assert "longer than 300 s" in refused.reason
    assert isinstance(propose_budget(times(worker(*[0.1] * 99, 301.0)), 600), PublishBudget)


def test_a_histogram_of_one_infinite_bucket_is_refused() -> None:
    assert isinstance(propose_budget(PublishTimes(((math.inf, 20),)), 600), Refusal)


@pytest.mark.parametrize("how", ["unchanged", "replaced", "returned"])
def test_only_merges_count(how: str) -> None:
    assert times(worker(*[0.1] * 30, how=how)).count == 0


def test_publications_with_an_unknown_outcome_count_with_the_time_they_took() -> None:
    metrics = worker(*[0.1] * 98)
    failed = PhaseEvent("phase_failed", "publish", 80.0, {"error": "UnknownOutcomeError"})
    metrics.observe("clean", failed)
    metrics.observe("clean", failed)
    assert times(metrics).count == 100
    assert times(metrics).p99() == 90.0


def test_tasks_are_kept_apart() -> None:
    metrics = worker(0.1)
    metrics.observe("other", PhaseEvent("phase_ended", "publish", 9.0, {"how": "merged"}))
    found = read_publish_times(metrics.render().decode())
    assert {name: item.count for name, item in found.items()} == {"clean": 1, "other": 1}


@pytest.mark.parametrize(
    "text",
    [
        "<html>\n",
        'perago_publish_seconds_bucket{task="t"} 1\n',
        'perago_publish_seconds_bucket{task="t",how="merged",le="x"} 1\n',
    ],
)
def test_a_text_that_is_no_worker_s_metrics_is_an_error(text: str) -> None:
    with pytest.raises(BackendError, match="not the metrics"):
        read_publish_times(text)


def test_metrics_without_publications_are_no_error() -> None:
    assert read_publish_times(WorkerMetrics(["t"]).render().decode()) == {}
    assert read_publish_times("") == {}


def test_the_proposal_is_python_that_builds_the_same_budget() -> None:
    proposed = propose_budget(times(worker(*[0.333] * 40)), 100)
    assert isinstance(proposed, PublishBudget)
    code = "\n".join(as_python(proposed))
    assert eval(f"dict({code})", {"PublishBudget": PublishBudget}) == {  # noqa: S307
        "publish_budget": proposed
    }


def test_metrics_are_read_from_a_running_worker() -> None:
    metrics = worker(*[0.1] * 20)
    with HealthServer(Address("127.0.0.1", 0), metrics, list) as server:
        text = fetch_metrics(f"http://{server.address}/metrics")
        assert read_publish_times(text)["clean"].count == 20
        assert fetch_metrics(f"http://{server.address}") == text
        with pytest.raises(BackendError, match="answered 404"):
            fetch_metrics(f"http://{server.address}/nothing")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:9464",
        "ftp://x/",
        "http://",
        "http://x:port/",
        "http://x:99999/",
        "http://x/a b",
        "http://a..b/metrics",
        "http://x/é",
        "http://user:secret@x/metrics",
    ],
)
def test_a_wrong_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be an http"):
        fetch_metrics(url)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        joined(thread)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]
)
def test_an_answer_that_is_not_http_or_is_cut_off_counts_as_unavailable(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(BackendUnavailableError, match="no metrics from"):
        fetch_metrics(url)


def test_a_worker_that_does_not_run_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BackendUnavailableError, match="no metrics from") as caught:
        fetch_metrics(f"http://127.0.0.1:{port}/metrics")
    assert caught.value.exit_code == 3
