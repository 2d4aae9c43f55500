"""Describe how Conductor treats a task: retries, timeouts, limits, and the publish budget.

These are plain values, not checked on creation. The ``@task`` decorator calls ``problems()`` of
each, so that all problems of a task are reported together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

RetryLogic = Literal["FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"]
TimeoutAction = Literal["RETRY", "TIME_OUT_WF", "ALERT_ONLY"]

# A worker renews a lease at least so often, however long the lease is.
LONGEST_HEARTBEAT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when Conductor retries a task."""

    count: int = 3
    delay_seconds: int = 60
    logic: RetryLogic = "FIXED"
    backoff_scale_factor: int = 1

    def problems(self) -> Iterator[str]:
        yield from _whole(self, "count", 0)
        yield from _whole(self, "delay_seconds", 0)
        yield from _whole(self, "backoff_scale_factor", 1)
        yield from _one_of(self, "logic", ("FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"))


@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """The time limits of a task.

    ``response_seconds`` is the lease: a worker that is silent for that long loses the attempt.
    ``total_seconds`` counts from the start and cannot be extended (0: no limit).
    ``body_seconds`` is the deadline of the body itself, and ``attempt_seconds`` that of the whole
    attempt, from its claim until it may publish (None: no limit).
    """

    response_seconds: int = 600
    total_seconds: int = 0
    poll_seconds: int = 0
    action: TimeoutAction = "TIME_OUT_WF"
    body_seconds: float | None = None
    attempt_seconds: float | None = None

    def problems(self) -> Iterator[str]:
        wrong = [*_whole(self, "response_seconds", 1), *_whole(self, "total_seconds", 0)]
        yield from wrong
        yield from _whole(self, "poll_seconds", 0)
        yield from _one_of(self, "action", ("RETRY", "TIME_OUT_WF", "ALERT_ONLY"))
        if not wrong and 0 < self.total_seconds < self.response_seconds:
            yield "TimeoutPolicy: total_seconds must be 0 or at least response_seconds"
        bad = [name for name in ("body_seconds", "attempt_seconds") if not self._is_deadline(name)]
        for name in bad:
            yield (
                f"TimeoutPolicy.{name} must be a number above 0, or None for no deadline, "
                f"not {getattr(self, name)!r}"
            )
        body, attempt = self.body_seconds, self.attempt_seconds
        if not bad and body is not None and attempt is not None and body > attempt:
            yield "TimeoutPolicy: body_seconds must not be longer than attempt_seconds"

    def _is_deadline(self, name: str) -> bool:
        value = getattr(self, name)
        return value is None or (_is_seconds(value) and value > 0)


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """How many attempts may run at once and start per window, over all workers (None: no limit)."""

    concurrent: int | None = None
    rate: int | None = None
    rate_window_seconds: int = 1

    def problems(self) -> Iterator[str]:
        for name in ("concurrent", "rate"):
            if getattr(self, name) is not None:
                yield from _whole(self, name, 1)
        yield from _whole(self, "rate_window_seconds", 1)


@dataclass(frozen=True, slots=True)
class PublishBudget:
    """The time that publishing may take, from measurements; a time limit, not a quota."""

    observed_merge_p99_seconds: float
    safety_margin_seconds: float
    lakefs_merge_timeout_seconds: float
    conductor_completion_timeout_seconds: float
    heartbeat_interval_seconds: float
    worker_shutdown_grace_seconds: float

    @property
    def total_seconds(self) -> float:
        """The least value for ``responseTimeoutSeconds``."""
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.heartbeat_interval_seconds
        )

    def problems(self) -> Iterator[str]:
        wrong = [item.name for item in fields(self) if not _is_seconds(getattr(self, item.name))]
        for name in wrong:
            value = getattr(self, name)
            yield f"PublishBudget.{name} must be a number of seconds, not {value!r}"
        if wrong:
            return
        if self.lakefs_merge_timeout_seconds <= 0 or self.heartbeat_interval_seconds <= 0:
            yield "PublishBudget: merge timeout and heartbeat interval must be above 0"
        needed = self.observed_merge_p99_seconds + self.safety_margin_seconds
        if self.lakefs_merge_timeout_seconds < needed:
            yield (
                "PublishBudget.lakefs_merge_timeout_seconds must cover the observed p99 plus the "
                f"safety margin: at least {needed:g}"
            )


@dataclass(frozen=True, slots=True)
class TaskControls:
    """The controls of a task: everything that is not part of its contract."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: TimeoutPolicy = field(default_factory=TimeoutPolicy)
    limits: ExecutionLimits = field(default_factory=ExecutionLimits)
    publish_budget: PublishBudget | None = None
    recovery: Literal["replace", "adopt"] = "replace"

    def problems(self) -> Iterator[str]:
        parts = (
            ("retry", RetryPolicy),
            ("timeout", TimeoutPolicy),
            ("limits", ExecutionLimits),
            ("publish_budget", PublishBudget),
        )
        for name, kind in parts:
            value = getattr(self, name)
            if isinstance(value, kind):
                yield from value.problems()
            elif value is not None or name != "publish_budget":
                yield f"TaskControls.{name} must be a {kind.__name__}, not {value!r}"
        yield from _one_of(self, "recovery", ("replace", "adopt"))


def _is_seconds(value: object) -> bool:
    """Whether a value is a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def _whole(value: Any, name: str, least: int) -> Iterator[str]:
    number = getattr(value, name)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        yield (
            f"{type(value).__name__}.{name} must be a whole number, {least} or more, not {number!r}"
        )


def _one_of(value: Any, name: str, allowed: tuple[str, ...]) -> Iterator[str]:
    given = getattr(value, name)
    if given not in allowed:
        yield f"{type(value).__name__}.{name} must be one of {', '.join(allowed)}, not {given!r}"
