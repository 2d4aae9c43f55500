"""Explore every reachable state of a system, breadth first: a violation has a shortest schedule."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Event = TypeVar("Event", bound=Hashable)


class System(Protocol[State, Event]):
    """Define the initial state, the moves and what must hold."""

    def initial(self) -> State: ...

    def moves(self, state: State) -> Iterable[tuple[Event, State]]:
        """Return every event that can happen next, with the state it leads to."""
        ...

    def objection(self, before: State, event: Event, after: State) -> str | None:
        """Return the name of the property that this move violates."""
        ...

    def may_rest(self, state: State) -> bool:
        """Tell whether nothing needs to happen any more; a state without moves must be one."""
        ...


@dataclass(frozen=True)
class Violation(Generic[Event]):
    broken: str
    schedule: tuple[Event, ...]


@dataclass(frozen=True)
class Exploration(Generic[Event]):
    states: int
    moves: int
    events: frozenset[Event]
    violation: Violation[Event] | None


def explore(system: System[State, Event], at_most: int = 5_000_000) -> Exploration[Event]:
    """Visit every reachable state, or stop at the first violation.

    Raises `OverflowError` when the space is larger than `at_most`: half of it proves nothing.
    """
    first = system.initial()
    # Predecessors only: the events of the one schedule that is wanted are found again at the end.
    came_from: dict[State, State | None] = {first: None}
    ahead = deque([first])
    events: set[Event] = set()
    moves = 0
    while ahead:
        state = ahead.popleft()
        stuck = True
        for event, after in system.moves(state):
            stuck = False
            moves += 1
            events.add(event)
            broken = system.objection(state, event, after)
            if broken is not None:
                schedule = (*_schedule(system, came_from, state), event)
                violation = Violation(broken, schedule)
                return Exploration(len(came_from), moves, frozenset(events), violation)
            if after not in came_from:
                came_from[after] = state
                ahead.append(after)
        if stuck and not system.may_rest(state):
            violation = Violation("deadlock", tuple(_schedule(system, came_from, state)))
            return Exploration(len(came_from), moves, frozenset(events), violation)
        if len(came_from) > at_most:
            raise OverflowError(f"more than {at_most} states: choose a smaller scenario")
    return Exploration(len(came_from), moves, frozenset(events), None)


def _schedule(
    system: System[State, Event], came_from: dict[State, State | None], last: State
) -> list[Event]:
    path = [last]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    path.reverse()
    return [
        next(event for event, after in system.moves(before) if after == wanted)
        for before, wanted in pairwise(path)
    ]
