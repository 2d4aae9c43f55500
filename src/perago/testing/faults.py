"""Inject faults into port calls: explicit, counted, and the same in every run.

A fault is a function that takes the call and makes it, fails, or does both:

    faults.inject("lake.merge", reply_lost)           # made, and the reply is lost
    faults.inject("lake.merge", request_lost)         # not made; to the caller the same
    faults.inject("lake.merge", lands_late(clock, 3)) # made three seconds after the client gave up
    faults.inject("lake.get_head", fails(BackendUnavailableError("down")))
    faults.inject("lake.merge", preceded_by(another_tool_commits))
    with faults.outage("lake"): ...                   # every call fails

Calls are named ``<port>.<method>``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Generic, NoReturn, TypeVar

from perago.errors import BackendError, BackendUnavailableError, LostReplyError
from perago.testing.clock import ManualClock

Returned = TypeVar("Returned")
Call = Callable[[], Any]
Fault = Callable[[Call], Any]


class Faults:
    """Holds the injected faults, and the journal of all calls that were made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._planned: dict[str, dict[int, Fault]] = {}
        self._made: Counter[str] = Counter()
        self._down: dict[str, BackendError] = {}
        # The transfer engine calls from several threads.
        self._lock = Lock()

    def inject(self, call: str, fault: Fault, *, skip: int = 0) -> None:
        """Inject a fault once: at the next call of that name, or ``skip`` calls later."""
        with self._lock:
            planned = self._planned.setdefault(call, {})
            turn = self._made[call] + skip
            while turn in planned:
                turn += 1
            planned[turn] = fault

    @contextmanager
    def outage(self, port: str, error: BackendError | None = None) -> Iterator[None]:
        """Let every call of a port (or one named call) fail within the block."""
        self._down[port] = error or BackendUnavailableError(f"{port}: connection refused")
        try:
            yield
        finally:
            del self._down[port]

    @property
    def pending(self) -> list[str]:
        """The calls with faults that were never made: a test that has some proves nothing."""
        return sorted(call for call, planned in self._planned.items() if planned)

    def run(self, call: str, do: Callable[[], Returned]) -> Returned:
        """Make a call of a port, with the fault that was injected for it."""
        with self._lock:
            self.calls.append(call)
            fault = self._planned.get(call, {}).pop(self._made[call], None)
            self._made[call] += 1
            down = self._down.get(call) or self._down.get(call.partition(".")[0])
        if down is not None:
            raise down
        returned: Returned = do() if fault is None else fault(do)
        return returned


def fails(error: BaseException) -> Fault:
    """Raise an error instead of making the call."""

    def fault(_do: Call) -> NoReturn:
        raise error

    return fault


def reply_lost(do: Call) -> NoReturn:
    """Make the call and lose the reply."""
    do()
    raise LostReplyError("the connection broke before the reply arrived")


def request_lost(_do: Call) -> NoReturn:
    """Lose the call; to the caller this is the same as a lost reply."""
    raise LostReplyError("the connection broke before the reply arrived")


def lands_late(clock: ManualClock, seconds: float) -> Fault:
    """Let the caller give up, and make the call ``seconds`` later, if it still succeeds."""

    def fault(do: Call) -> NoReturn:
        def land() -> None:
            with suppress(BackendError):
                do()

        clock.call_later(seconds, land)
        raise LostReplyError("no reply within the timeout")

    return fault


class BranchUpdate(Generic[Returned]):
    """A change of a branch in the two steps of LakeFS: resolve the source, then write.

    ``resolve`` returns the write. A write that finds the branch moved resolves the source again,
    as LakeFS does on every retry of its conditional write.
    """

    def __init__(self, resolve: Callable[[], Callable[[], Returned]]) -> None:
        self.resolve = resolve

    def __call__(self) -> Returned:
        return self.resolve()()


def lands_late_resolved(clock: ManualClock, seconds: float) -> Fault:
    """The caller gives up when the server has resolved the source; the write comes later."""

    def fault(do: Call) -> NoReturn:
        if not isinstance(do, BranchUpdate):
            raise TypeError("only merges and relocations resolve a source")
        write = do.resolve()

        def land() -> None:
            with suppress(BackendError):
                write()

        clock.call_later(seconds, land)
        raise LostReplyError("no reply within the timeout")

    return fault


def preceded_by(action: Callable[[], object]) -> Fault:
    """Run an action directly before the call."""

    def fault(do: Call) -> Any:
        action()
        return do()

    return fault


def followed_by(action: Callable[[], object]) -> Fault:
    """Run an action between the call and its reply."""

    def fault(do: Call) -> Any:
        returned = do()
        action()
        return returned

    return fault
