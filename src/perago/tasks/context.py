"""Tell a body about its attempt: ``perago.context()``.

The function of a task stays a plain function. Called directly, as a test does, it gets a context of
no attempt: nothing stops it, and its progress is reported nowhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

# Progress is logged and posted to Conductor: a body may tell of each row, and the log must not.
# The pause doubles, so that a day of work is told in some three hundred lines.
_SHORTEST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0
_PAUSE_BEFORE_THE_LAST = 1.0


@dataclass(frozen=True, slots=True)
class AttemptState:
    """What only the supervisor of an attempt knows."""

    # None without a deadline.
    seconds_left: float | None = None
    stopped: bool = False


def _not_reported(_done: float, _total: float | None) -> None:
    pass


@dataclass
class TaskContext:
    """One attempt, as its body sees it. It may be used from any thread of the body."""

    task: str = ""
    workflow_id: str = ""
    task_id: str = ""
    execution_id: str = ""
    # 1 for the first try of a step, 2 for its first retry.
    attempt_number: int = 1
    _ask: Callable[[], AttemptState] = field(default=AttemptState, repr=False)
    _tell: Callable[[float, float | None], None] = field(default=_not_reported, repr=False)
    _pid: int = field(default_factory=os.getpid, repr=False)
    _told_at: float | None = field(default=None, repr=False)
    _pause: float = field(default=_SHORTEST_PAUSE, repr=False)

    @property
    def seconds_left(self) -> float | None:
        """The time until the deadline of the body or the attempt; None without one."""
        return self._state().seconds_left

    @property
    def stopped(self) -> bool:
        """Whether the worker is stopping: it waits for this attempt for a limited time only."""
        return self._state().stopped

    def _state(self) -> AttemptState:
        # A process that the body forked has no answers: they come to its parent.
        return self._ask() if os.getpid() == self._pid else AttemptState()

    def progress(self, done: float, total: float | None = None) -> None:
        """Tell how much is done; call it as often as you like.

        Few calls are told: one in ten seconds at first, one in five minutes in the end. The last
        one (``done == total``) is told sooner.
        """
        now = time.monotonic()
        is_last = total is not None and done >= total
        pause = _PAUSE_BEFORE_THE_LAST if is_last else self._pause
        if self._told_at is not None:
            if now - self._told_at < pause:
                return
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._told_at = now
        self._tell(done, total)

    def close(self) -> None:
        """Detach from the attempt, which is over: a thread that was left behind tells nothing."""
        self._tell = _not_reported
        self._ask = lambda: AttemptState(seconds_left=0.0, stopped=True)


_current: ContextVar[TaskContext | None] = ContextVar("perago_context", default=None)


def context() -> TaskContext:
    """Return the context of the attempt whose body calls this.

    A thread that the body starts has none of its own: call this in the body and pass it on.
    """
    return _current.get() or TaskContext()


@contextmanager
def attempt_context(given: TaskContext) -> Iterator[None]:
    """Give the bodies within the block their context."""
    token = _current.set(given)
    try:
        yield
    finally:
        _current.reset(token)
        given.close()
