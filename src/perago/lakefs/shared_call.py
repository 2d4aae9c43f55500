"""Requests and threads: one request for all that want the same, and one that is made meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Lock, Thread
from typing import Generic, TypeVar

Result = TypeVar("Result")


def begun(call: Callable[[], Result]) -> Future[Result]:
    """Make a call in a thread, with the deadlines of this one.

    Nothing waits for a call whose result is not wanted any more: it ends by its own limits.
    """
    future, context = Future[Result](), copy_context()

    def make() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001  raised where the result is wanted
            future.set_exception(error)

    Thread(target=make, name="perago-ahead", daemon=True).start()
    return future


class SharedCall(Generic[Result]):
    """Makes a call for all threads that want it meanwhile; they share its result or its error.

    With a lock in its place, each of them would wait for the whole of an outage, one after the
    other.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: Future[Result] | None = None

    def make(self, call: Callable[[], Result]) -> Result:
        """Make the call, or wait for the one that is under way."""
        running, is_ours = self._join()
        return self._make(running, call) if is_ours else running.result()

    def make_unless_running(self, call: Callable[[], Result]) -> None:
        """Make the call, unless one is under way."""
        running, is_ours = self._join()
        if is_ours:
            self._make(running, call)

    def _join(self) -> tuple[Future[Result], bool]:
        with self._lock:
            if self._running is not None:
                return self._running, False
            self._running = Future()
            return self._running, True

    def _make(self, running: Future[Result], call: Callable[[], Result]) -> Result:
        try:
            result = call()
        except BaseException as error:
            running.set_exception(error)
            raise
        else:
            running.set_result(result)
            return result
        finally:
            with self._lock:
                self._running = None
