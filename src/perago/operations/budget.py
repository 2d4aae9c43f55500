"""A publish budget from measured publish times. docs/budget.md gives the reasons for the rules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from perago.errors import BackendError, BackendUnavailableError, ConfigurationError
from perago.http_client import HttpClient, RequestError
from perago.tasks.controls import LONGEST_HEARTBEAT_SECONDS, PublishBudget

LEAST_OBSERVATIONS = 20
_HISTOGRAM = "perago_publish_seconds"
_BUDGET = "perago_publish_budget_seconds"
# What a merge is: a relocation has a timeout of its own, and an unchanged target needs neither.
_MERGES = frozenset({"merged", "unknown"})
_LEAST_MARGIN = 1.0
_LEAST_MERGE_TIMEOUT = 5.0
_COMPLETION_TIMEOUT = 30.0
_LEAST_GRACE = 30.0
_READ_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PublishTimes:
    """A histogram: how many publications took at most so many seconds, the last bound infinite."""

    buckets: tuple[tuple[float, int], ...] = ()

    @property
    def count(self) -> int:
        return self.buckets[-1][1] if self.buckets else 0

    def p99(self) -> float:
        """A time that 99 of 100 publications did not exceed: the upper bound of a bucket.

        Interpolating within the bucket would guess, and a guess that is too low cuts merges off.
        """
        # In whole numbers: 0.99 has no exact binary form.
        return next(bound for bound, count in self.buckets if count * 100 >= self.count * 99)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no proposal."""

    reason: str


def propose_budget(times: PublishTimes, response_seconds: float) -> PublishBudget | Refusal:
    """The budget that these times call for, or why they call for none."""
    if times.count < LEAST_OBSERVATIONS:
        return Refusal(
            f"{times.count} publications were measured; a proposal needs {LEAST_OBSERVATIONS}"
        )
    p99 = times.p99()
    if math.isinf(p99):
        longest = times.buckets[-2][0] if len(times.buckets) > 1 else 0.0
        return Refusal(
            f"more than 1 of 100 publications took longer than {longest:g} s, the end of the "
            "histogram; find out why before a budget makes room for them"
        )
    margin = max(p99, _LEAST_MARGIN)
    merge = float(math.ceil(max(p99 + margin, _LEAST_MERGE_TIMEOUT)))
    return PublishBudget(
        observed_merge_p99_seconds=p99,
        safety_margin_seconds=margin,
        lakefs_merge_timeout_seconds=merge,
        conductor_completion_timeout_seconds=_COMPLETION_TIMEOUT,
        heartbeat_interval_seconds=round(min(response_seconds / 3, LONGEST_HEARTBEAT_SECONDS), 1),
        worker_shutdown_grace_seconds=max(_LEAST_GRACE, merge + _COMPLETION_TIMEOUT),
    )


def read_publish_times(text: str) -> dict[str, PublishTimes]:
    """The merge times per task in a worker's ``/metrics``."""
    counts: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    with _reading_metrics():
        for sample in _samples(text, f"{_HISTOGRAM}_bucket"):
            if sample.labels["how"] in _MERGES:
                # Cumulative counts of two histograms with the same bounds add up.
                bound = float(sample.labels["le"])
                counts[sample.labels["task"]][bound] += int(sample.value)
    return {task: PublishTimes(tuple(sorted(found.items()))) for task, found in counts.items()}


def read_budgets(text: str) -> dict[str, float]:
    """The seconds that publish budgets give to a merge, per task, in a worker's ``/metrics``."""
    with _reading_metrics():
        return {sample.labels["task"]: sample.value for sample in _samples(text, _BUDGET)}


def _samples(text: str, name: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from (sample for sample in family.samples if sample.name == name)


@contextmanager
def _reading_metrics() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, OverflowError) as error:
        raise BackendError(
            "what was read is not the metrics of a Perago worker",
            hint="Give the worker's own address: --metrics-url http://HOST:PORT/metrics.",
        ) from error


def fetch_metrics(url: str) -> str:
    """Read ``/metrics`` of a worker, bounded in time and size."""
    base, path = _parts(url)
    client = HttpClient(base, connect_timeout=_READ_SECONDS)
    try:
        answer = client.request("GET", path, seconds=_READ_SECONDS)
    except RequestError as error:
        raise BackendUnavailableError(
            f"no metrics from {base}: {error}",
            hint="Start the worker, or give the address it serves: "
            "--metrics-url http://HOST:PORT/metrics.",
        ) from error
    finally:
        client.close()
    if answer.status != 200:
        raise BackendError(f"{base} answered {answer.status}, not with a worker's metrics")
    return answer.body.decode("utf-8", errors="replace")


def _parts(url: str) -> tuple[str, str]:
    """Where the worker is, and what to ask for."""
    wrong = ConfigurationError(
        "the metrics URL must be an http(s) address with a host",
        hint="Write --metrics-url http://127.0.0.1:9464/metrics.",
    )
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0  # a port that is none raises
        parts.netloc.encode("idna")
    except ValueError:
        raise wrong from None
    # Without credentials: the address is in messages.
    is_plain = url.isascii() and url.isprintable() and not {" ", "@"} & set(url)
    if parts.scheme not in {"http", "https"} or not has_host or not is_plain:
        raise wrong
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/metrics") + query


def as_python(budget: PublishBudget) -> list[str]:
    """Lines to paste into ``TaskControls(…)``."""
    values = (f"    {item.name}={getattr(budget, item.name)!r}," for item in fields(budget))
    return ["publish_budget=PublishBudget(", *values, "),"]
