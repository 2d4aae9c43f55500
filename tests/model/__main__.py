"""Print the measured parts of docs/model.md: ``PYTHONPATH=tests python -m model``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import groupby

from model.explore import explore
from model.mutants import LIMITS, MUTANTS, OUTSIDE, Mutant, scenarios
from model.properties import Watched
from model.rules import Scenario
from model.state import Event

# The routine of every schedule, in fewer words.
SHORT = (
    (r"passes its first attempt fence, makes its licence: a staging branch at the input, ", ""),
    (
        r"stages its result and commits it on its staging branch, passes its second attempt fence",
        "stages and passes its fences",
    ),
    (r"lists the licences of others: ", "lists licences: "),
    (
        r"LakeFS resolves the source of (execution \d's \w+) and reads HEAD; \1 lands: [\w ]+",
        r"\1 resolves its source and lands",
    ),
    (
        r"LakeFS resolves the source of (execution \d's \w+) and reads HEAD",
        r"\1 resolves its source",
    ),
    (r" lands: LakeFS writes the target", " lands"),
    (r"reads the claim: still its own, posts COMPLETED and Conductor accepts it", "completes"),
    (r"makes its licence: a staging branch at the input", "makes its licence"),
    (r"execution (\d)", r"E\1"),
)


def groups() -> Iterator[tuple[str, list[Scenario]]]:
    """Name the groups of scenarios whose sizes the page gives."""
    for outside in OUTSIDE:
        both = [s for hard in (False, True) for s in scenarios(2, hard_fence=hard, **outside)]
        what = "second task" if "second_task_from" in outside else str(both[0]).partition("; ")[2]
        yield ("two, " + what).removesuffix(", "), both
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
    text = "; ".join(phrases(events))
    for long, short in SHORT:
        text = re.sub(long, short, text)
    heading = f"**{mutant.name}** breaks *{mutant.breaks}* ({mutant.scenario}; {len(events)} steps)"
    return f"{heading}: {text}."


def phrases(events: tuple[Event, ...]) -> Iterator[str]:
    """Join what one execution does without interruption into one phrase."""
    for subject, group in groupby(events, lambda event: event.who if "{it} " in event.text else -1):
        texts = [str(event) for event in group]
        if subject >= 0:
            name = f"execution {subject + 1} "
            yield ", ".join([texts[0], *(text.removeprefix(name) for text in texts[1:])])
        else:
            yield "; ".join(texts)


if __name__ == "__main__":
    for mutant in (*MUTANTS, *LIMITS):
        print(schedule(mutant), end="\n\n")
    for name, group in groups():
        print(size(name, group), flush=True)
