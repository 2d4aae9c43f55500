"""Print the measured parts of docs/model.md: ``PYTHONPATH=tests python -m model``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby

from model.explore import explore
from model.mutants import LIMITS, MUTANTS, OUTSIDE, Mutant, scenarios
from model.properties import Watched
from model.rules import Scenario
from model.state import Event


def groups() -> Iterator[tuple[str, list[Scenario]]]:
    """Name the groups of scenarios whose sizes the page gives."""
    for outside in OUTSIDE:
        both = [s for hard in (False, True) for s in scenarios(2, hard_fence=hard, **outside)]
        yield f"two, {both[0]}", both
    yield "three", scenarios(3)
    yield "three, second task", [s for n in (1, 2) for s in scenarios(3, second_task_from=n)]
    yield "three, redelivery", scenarios(3, redelivery=True, claim_stands_while_posting=True)
    yield "three, gc", scenarios(3, gc=True)
    yield "three, person", scenarios(3, person="changes")
    yield "three, person, hard fence", scenarios(3, person="changes", hard_fence=True)


def size(name: str, group: list[Scenario]) -> str:
    start = time.process_time()
    found = [explore(Watched(scenario)) for scenario in group]
    assert all(exploration.violation is None for exploration in found)
    states = [exploration.states for exploration in found]
    moves = sum(exploration.moves for exploration in found)
    took = time.process_time() - start
    return (
        f"| {name} | {len(group)} | {sum(states):,} | {max(states):,} | {moves:,} | {took:.1f} s |"
    )


def schedule(mutant: Mutant) -> str:
    """Tell the shortest schedule that violates the mutant's property, in words."""
    found = explore(Watched(mutant.scenario, mutant.rules, frozenset({mutant.breaks})))
    if found.violation is None:
        raise LookupError(f"no violation: {mutant.name}")
    events = found.violation.schedule
    heading = f"**{mutant.name}** breaks {mutant.breaks} ({mutant.scenario}; {len(events)} steps): "
    return heading + "; ".join(phrases(events)) + "."


def phrases(events: tuple[Event, ...]) -> Iterator[str]:
    """Join what one execution does without interruption into one phrase."""
    for subject, group in groupby(
        events, lambda event: (event.who, event.text.startswith("{it} "))
    ):
        texts = [str(event) for event in group]
        name = f"execution {subject[0] + 1} "
        if subject[1]:
            texts[1:] = [text.removeprefix(name).replace("; ", ", ") for text in texts[1:]]
            texts[0] = texts[0].replace("; ", ", ")
        yield ", ".join(texts)


if __name__ == "__main__":
    for mutant in (*MUTANTS, *LIMITS):
        print(schedule(mutant), end="\n\n")
    for name, group in groups():
        print(size(name, group), flush=True)
