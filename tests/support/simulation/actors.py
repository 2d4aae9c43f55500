"""Executions as greenlets: each stops before every call to a server, until it is told to go on.

Greenlets, because the protocol's code is plain synchronous code, and every interleaving of it must
be reached and repeated without threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The process of an execution is gone; nothing it does afterwards reaches a server."""


@dataclass
class Call:
    """What an execution is about to ask of a server."""

    name: str
    do: Callable[[], Any]


@dataclass
class Sleep:
    """An execution waits until a time."""

    until: float


@dataclass
class Answer:
    """A call was carried out, and what it gave arrives at a time.

    A request that is still being carried out has until then: what it gave is not known before.
    """

    name: str
    until: float
    result: Any = None
    error: BaseException | None = None


Waiting = Call | Sleep | Answer


@dataclass
class Actor:
    """One execution, from its claim to its report."""

    name: str
    run: Callable[[], None]
    waiting: Waiting | None = None
    finished: bool = False
    dead: bool = False
    # The step until which it does nothing.
    frozen_until: int = 0
    # What it was about to do when it last froze: it does not freeze there twice.
    froze_before: Waiting | None = None
    # Whether its outcome is known: from now on it only tells Conductor.
    reports: bool = False
    error: BaseException | None = None
    _green: greenlet | None = field(default=None, repr=False)

    def prepare(self) -> greenlet:
        """The greenlet, which has not begun yet."""
        self._green = greenlet(self._main)
        return self._green

    def start(self) -> None:
        self._resume()

    def answer(self, result: Any = None, error: BaseException | None = None) -> None:
        """Let the execution go on, with what its call gave."""
        self._resume((result, error))

    def kill(self) -> None:
        """End the process: the execution unwinds, and every call on the way is dead."""
        self.dead = True
        self._resume((None, Killed()))

    @property
    def is_live(self) -> bool:
        return not self.finished

    def _resume(self, *given: Any) -> None:
        assert self._green is not None
        self.waiting = self._green.switch(*given)

    def _main(self) -> None:
        try:
            self.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  told by the simulation
            self.error = error
        finally:
            self.finished = True


def wait_for(actor: Actor, waiting: Waiting) -> Any:
    """Called inside an execution: hand over to the scheduler until it answers."""
    if actor.dead:
        raise Killed
    parent = getcurrent().parent
    assert parent is not None
    result, error = parent.switch(waiting)
    if error is not None:
        raise error
    return result
