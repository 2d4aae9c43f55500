"""Faults at port calls: explicit, counted, and the same in every run.

A fault is a function that gets the call and decides what becomes of it:

    faults.inject("lake.merge", reply_lost)           # done, and the reply never comes
    faults.inject("lake.merge", request_lost)         # never done, and nobody can tell
    faults.inject("lake.merge", lands_late(clock, 3)) # done three seconds after the client gave up
    faults.inject("lake.get_head", fails(BackendUnavailableError("down")))
    faults.inject("lake.merge", preceded_by(somebody_else_commits))
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

Result = TypeVar("Result")
Call = Callable[[], Any]
Fault = Callable[[Call], Any]


class Faults:
    """What goes wrong, call by call. Also the journal of all calls that were made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._planned: dict[str, dict[int, Fault]] = {}
        self._made: Counter[str] = Counter()
        self._down: dict[str, BackendError] = {}
        # The transfer engine calls from several threads.
        self._lock = Lock()

    def inject(self, call: str, fault: Fault, *, skip: int = 0) -> None:
        """Let a fault happen once: at the next call of that name, or ``skip`` calls later."""
        with self._lock:
            planned = self._planned.setdefault(call, {})
            turn = self._made[call] + skip
            while turn in planned:
                turn += 1
            planned[turn] = fault

    @contextmanager
    def outage(self, port: str, error: BackendError | None = None) -> Iterator[None]:
        """Within the block, every call of a port (or one named call) fails."""
        self._down[port] = error or BackendUnavailableError(f"{port}: connection refused")
        try:
            yield
        finally:
            del self._down[port]

    @property
    def pending(self) -> list[str]:
        """Calls that were to fail and were never made: a test that has some proves nothing."""
        return sorted(call for call, planned in self._planned.items() if planned)

    def run(self, call: str, do: Callable[[], Result]) -> Result:
        """Make a call as the port does, with whatever was injected for it."""
        with self._lock:
            self.calls.append(call)
            fault = self._planned.get(call, {}).pop(self._made[call], None)
            self._made[call] += 1
            down = self._down.get(call) or self._down.get(call.partition(".")[0])
        if down is not None:
            raise down
        answer: Result = do() if fault is None else fault(do)
        return answer


def fails(error: BaseException) -> Fault:
    """The call is not made; the error comes instead."""

    def fault(_do: Call) -> NoReturn:
        raise error

    return fault


def reply_lost(do: Call) -> NoReturn:
    """The call is made and the reply lost."""
    do()
    raise LostReplyError("the connection broke before the reply came")


def request_lost(_do: Call) -> NoReturn:
    """The call is lost on its way; to the caller that looks like a lost reply."""
    raise LostReplyError("the connection broke before the reply came")


def lands_late(clock: ManualClock, seconds: float) -> Fault:
    """The caller gives up; the server makes the change ``seconds`` later, if it still can."""

    def fault(do: Call) -> NoReturn:
        def land() -> None:
            with suppress(BackendError):
                do()

        clock.call_later(seconds, land)
        raise LostReplyError("no reply within the timeout")

    return fault


class BranchUpdate(Generic[Result]):
    """A change of a branch in the two steps of LakeFS: resolve the source, then write.

    ``resolve`` returns the write. A write that finds the branch moved resolves the source again,
    as LakeFS does on every retry of its conditional write.
    """

    def __init__(self, resolve: Callable[[], Callable[[], Result]]) -> None:
        self.resolve = resolve

    def __call__(self) -> Result:
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
    """Something else happens just before the call is made."""

    def fault(do: Call) -> Any:
        action()
        return do()

    return fault


def followed_by(action: Callable[[], object]) -> Fault:
    """Something else happens between the call and its reply."""

    def fault(do: Call) -> Any:
        answer = do()
        action()
        return answer

    return fault
