"""What a worker counts and times, for Prometheus, in a registry of its own.

Everything about an attempt is made from the protocol's phase events and from how it ended, so that
metrics and logs cannot tell different stories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from perago.errors import (
    Disposition,
    MixedPublicationError,
    PublishFenceError,
    StaleAttemptError,
    UnknownOutcomeError,
)
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed, Outcome

# Neighbours differ by at most two thirds, so that a quantile read from them is good enough for a
# publish budget.
PUBLISH_BUCKETS = (
    *(0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5),
    *(10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0),
)
_PHASE_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
# A publication whose outcome is unknown took at least its timeout: leaving it out would make
# publishing look faster than it is.
UNKNOWN = "unknown"
_FENCES = {
    StaleAttemptError.__name__: "attempt",
    PublishFenceError.__name__: "publish",
    MixedPublicationError.__name__: "publish",
}
# Here the author's code runs, whose exceptions are not the fences'.
_AUTHORS_PHASES = frozenset({"body", "pre_guardrails", "post_guardrails"})


class AttemptEnd(StrEnum):
    """How an attempt ended, as far as this worker is concerned."""

    COMPLETED = "completed"
    FAILED = "failed"
    TERMINAL = "terminal"
    STALE = "stale"
    DIED = "died"
    HANDED_BACK = "handed_back"


class WorkerMetrics:
    """The metrics of one worker. Every method may be called from any thread."""

    def __init__(self, tasks: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        # When a slot was last seen to become idle after all were busy. Silence is counted on the
        # monotonic clock: the machine's date may be set back or forward.
        self._idle_since = time.monotonic()
        # What is asked for with each attempt: to read it from the registry collects all metrics.
        self._slot_count = self._busy_count = 0
        self._polled_at: float | None = None
        self._attempts = self._counter("attempts", "Attempts that ended.", "task", "outcome")
        self._phases = self._histogram(
            "phase_seconds", "Time per phase of an attempt.", _PHASE_BUCKETS, "task", "phase"
        )
        self._publish = self._histogram(
            "publish_seconds",
            "Time of the publish phase; how: merged, replaced, returned, unchanged or unknown.",
            PUBLISH_BUCKETS,
            "task",
            "how",
        )
        self._bytes = self._counter(
            "transfer_bytes", "Bytes moved; direction: download or upload.", "task", "direction"
        )
        self._objects = self._counter(
            "transfer_objects",
            "Objects moved; direction: download, upload or delete.",
            "task",
            "direction",
        )
        self._cache_objects = self._counter(
            "object_cache_requests",
            "Objects looked up in the object cache; result: hit or miss.",
            "task",
            "result",
        )
        self._cache_bytes = self._counter(
            "object_cache_hit_bytes", "Bytes taken from the object cache.", "task"
        )
        self._kept_files = self._counter(
            "kept_files", "Files taken from the workspace of the attempt before.", "task"
        )
        self._cache_evictions = self._counter(
            "object_cache_evictions", "Files evicted from the object cache.", "task"
        )
        self._rejections = self._counter(
            "fence_rejections",
            "Attempts stopped by a fence; fence: attempt or publish.",
            "task",
            "fence",
        )
        self._unknown = self._counter(
            "unknown_outcomes", "Changes of which it is not known whether they landed.", "task"
        )
        self._lost = self._counter(
            "lost_replies", "Changes asked for whose reply was lost.", "task"
        )
        self._replacements = self._counter(
            "replacements", "Abandoned publications that were replaced or taken back.", "task"
        )
        self._withdrawals = self._counter(
            "withdrawals", "Licences of executions that were withdrawn.", "task"
        )
        self._warnings = self._counter(
            "guardrail_warnings", "Guardrails that were broken and only warn.", "task"
        )
        self._poll_failures = self._counter("poll_failures", "Polls that failed.", "task")
        self._undelivered = self._counter(
            "undelivered_results", "Results that Conductor could not be given.", "task"
        )
        self._lease_losses = self._counter(
            "lease_losses", "Attempts that Conductor gave away or ended while they ran.", "task"
        )
        self._last_poll = self._gauge(
            "last_poll_timestamp_seconds", "When Conductor last answered a poll, in Unix time."
        )
        self._oldest = self._gauge(
            "oldest_attempt_seconds", "For how long the oldest running attempt has been running."
        )
        self._budget = self._gauge(
            "publish_budget_seconds", "Time that the publish budget gives to a merge.", "task"
        )
        self._restarts = self._counter("executor_restarts", "Executors started again.")
        self._slots = self._gauge("slots", "Attempts that can run at once.")
        self._busy = self._gauge("busy_slots", "Attempts that run now.")
        self._announce(tasks)

    def observe(self, task: str, event: PhaseEvent) -> None:
        """Count and time what a phase event tells."""
        match event.action:
            case "phase_ended":
                self._time(task, event)
                self._count_transfer(task, event)
                if event.phase == "publish":
                    self._time_publish(task, event, str(event.details.get("how", UNKNOWN)))
            case "phase_failed":
                self._time(task, event)
                self._count_failure(task, event)
            case "reply_lost":
                self._lost.labels(task).inc()
            case "publication_replaced":
                self._replacements.labels(task).inc()
            case "licence_withdrawn":
                self._withdrawals.labels(task).inc()
            case "guardrail_warned":
                self._warnings.labels(task).inc()

    def finished(self, task: str, outcome: Outcome) -> None:
        """An attempt ended and its outcome was reported."""
        if isinstance(outcome, Completed):
            end = AttemptEnd.COMPLETED
        elif outcome.code == StaleAttemptError.code:
            end = AttemptEnd.STALE
        elif outcome.disposition is Disposition.TERMINAL:
            end = AttemptEnd.TERMINAL
        else:
            end = AttemptEnd.FAILED
        self._attempts.labels(task, end).inc()

    def stale(self, task: str) -> None:
        """An attempt turned out to be no longer ours."""
        self._attempts.labels(task, AttemptEnd.STALE).inc()

    def handed_back(self, task: str) -> None:
        """An attempt was put back into the queue, at shutdown."""
        self._attempts.labels(task, AttemptEnd.HANDED_BACK).inc()

    def died(self, task: str) -> None:
        """An attempt ended with its executor."""
        self._attempts.labels(task, AttemptEnd.DIED).inc()

    def undelivered(self, task: str) -> None:
        """A result could not be delivered to Conductor."""
        self._undelivered.labels(task).inc()

    def poll_failed(self, task: str) -> None:
        """A poll failed."""
        self._poll_failures.labels(task).inc()

    def poll_succeeded(self) -> None:
        """Conductor answered a poll."""
        self._polled_at = time.monotonic()
        self._last_poll.set(time.time())

    def lease_lost(self, task: str) -> None:
        """Conductor was seen to have taken a running attempt away."""
        self._lease_losses.labels(task).inc()

    def watch_age(self, seconds: Callable[[], float]) -> None:
        """Ask for the age of the oldest running attempt with each scrape."""
        self._oldest.set_function(seconds)

    def set_publish_budget(self, task: str, seconds: float) -> None:
        """How long a merge of a task may take, by its publish budget."""
        self._budget.labels(task).set(seconds)

    def executor_restarted(self) -> None:
        """An executor that died was started again."""
        self._restarts.inc()

    def set_slots(self, count: int) -> None:
        """How many attempts can run at once."""
        self._slot_count = count
        self._slots.set(count)
        self._idle_since = time.monotonic()

    def set_busy_slots(self, count: int) -> None:
        """How many attempts run now."""
        if self._busy_count >= self._slot_count > count:
            self._idle_since = time.monotonic()
        self._busy_count = count
        self._busy.set(count)

    @property
    def has_polled(self) -> bool:
        """Whether Conductor has ever answered a poll."""
        return self._polled_at is not None

    def unanswered_seconds(self) -> float:
        """For how long no poll was answered while a slot was idle; 0 while all slots are busy."""
        if self._busy_count >= self._slot_count:
            return 0.0
        polled_at = self._idle_since if self._polled_at is None else self._polled_at
        return time.monotonic() - max(polled_at, self._idle_since)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _time(self, task: str, event: PhaseEvent) -> None:
        if event.seconds is not None:
            self._phases.labels(task, event.phase).observe(event.seconds)

    def _time_publish(self, task: str, event: PhaseEvent, how: str) -> None:
        if event.seconds is not None:
            self._publish.labels(task, how).observe(event.seconds)

    def _count_failure(self, task: str, event: PhaseEvent) -> None:
        error = event.details.get("error")
        if event.phase in _AUTHORS_PHASES or not isinstance(error, str):
            return
        if fence := _FENCES.get(error):
            self._rejections.labels(task, fence).inc()
        elif error == UnknownOutcomeError.__name__:
            self._unknown.labels(task).inc()
            if event.phase == "publish":
                self._time_publish(task, event, UNKNOWN)

    def _count_transfer(self, task: str, event: PhaseEvent) -> None:
        details: Mapping[str, int] = event.details
        match event.phase:
            case "download":
                hits, hit_bytes = details.get("cache_hits", 0), details.get("cache_hit_bytes", 0)
                kept, kept_bytes = details.get("kept_files", 0), details.get("kept_bytes", 0)
                moved_bytes = details.get("bytes", 0) - hit_bytes - kept_bytes
                self._bytes.labels(task, "download").inc(moved_bytes)
                self._objects.labels(task, "download").inc(details.get("objects", 0) - hits - kept)
                self._kept_files.labels(task).inc(kept)
                self._cache_objects.labels(task, "hit").inc(hits)
                self._cache_objects.labels(task, "miss").inc(details.get("cache_misses", 0))
                self._cache_bytes.labels(task).inc(hit_bytes)
            case "stage":
                self._bytes.labels(task, "upload").inc(details.get("upload_bytes", 0))
                self._objects.labels(task, "upload").inc(details.get("uploads", 0))
                self._objects.labels(task, "delete").inc(details.get("deletes", 0))

        if event.phase in {"download", "stage"}:
            self._cache_evictions.labels(task).inc(details.get("cache_evictions", 0))

    def _announce(self, tasks: Iterable[str]) -> None:
        """Show zeros from the start: a counter that appears with its first event has no rate."""
        for task in tasks:
            for end in AttemptEnd:
                self._attempts.labels(task, end)
            for direction in ("download", "upload"):
                self._bytes.labels(task, direction)
            for direction in ("download", "upload", "delete"):
                self._objects.labels(task, direction)
            for result in ("hit", "miss"):
                self._cache_objects.labels(task, result)
            for fence in ("attempt", "publish"):
                self._rejections.labels(task, fence)
            for counter in (
                self._unknown,
                self._lost,
                self._replacements,
                self._withdrawals,
                self._warnings,
                self._poll_failures,
                self._lease_losses,
                self._undelivered,
                self._cache_bytes,
                self._kept_files,
                self._cache_evictions,
            ):
                counter.labels(task)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="perago", registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, namespace="perago", registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            name, text, labels, namespace="perago", buckets=buckets, registry=self.registry
        )
