"""What kind of schedule it is: drawn once, before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from support.simulation.choices import Choices

_OFTEN = 1000


@dataclass
class Scenario:
    """How likely each thing is that can go wrong, and the settings of the task."""

    hard: bool
    recovery: Literal["replace", "adopt"]
    # How likely a person commits, or an operator acts.
    person: float
    operator: float
    # How often an operator acts at most.
    operations: int
    # Whether the person waits until something was published.
    person_waits: bool
    # How likely a call goes wrong in each way, one that moves the target, a kill, a time-out.
    calls: float
    moves: float
    kills: float
    timeouts: float
    # How likely an execution freezes, and how likely a staging branch cannot be deleted.
    freezes: float
    cleanups: float
    # How likely the answer of a call takes time, while others go on.
    slow: float
    # Whether executions run in bursts: one does several steps before another gets its turn.
    bursts: bool
    # How likely a worker starts and sweeps the root of the attempt directories.
    sweeps: float
    replacement: Literal["provenance", "head-state"]
    # Whether an earlier execution has published and died before the first one here.
    abandoned: bool
    # The calls before which executions freeze, and those whose answers take time; empty: any.
    freezes_before: tuple[str, ...] = ()
    slow_calls: tuple[str, ...] = ()
    # How likely one that is frozen goes on, where nothing but hostile things can happen.
    thaws: float = 0.1
    # The numbers of the executions that change nothing; empty: drawn.
    no_ops: tuple[int, ...] = ()


def draw(choices: Choices) -> Scenario:
    """Some schedules are full of faults, most have few: too hostile ones get nowhere."""
    return Scenario(
        hard=bool(choices.pick("hard fence", [2, 1])),
        recovery="adopt" if choices.pick("adopt", [3, 1]) else "replace",
        person=(0.0, 0.05, 0.5)[choices.pick("a person may commit", [6, 1, 1])],
        operator=(0.0, 0.03, 0.3)[choices.pick("an operator may act", [6, 1, 1])],
        operations=(1, _OFTEN)[choices.pick("an operator acts often", [1, 2])],
        person_waits=bool(choices.pick("the person waits", [1, 1])),
        calls=(0.0, 0.003, 0.012)[choices.pick("faulty calls", [2, 2, 1])],
        moves=(0.0, 0.08, 0.3)[choices.pick("faulty moves", [1, 2, 3])],
        kills=(0.0, 0.03)[choices.pick("kills", [2, 1])],
        timeouts=(0.0, 0.02, 0.12)[choices.pick("time-outs", [1, 2, 1])],
        freezes=(0.0, 0.03, 0.2)[choices.pick("freezes", [4, 1, 1])],
        cleanups=(0.0, 0.3)[choices.pick("failing cleanups", [3, 1])],
        slow=(0.0, 0.02, 0.2)[choices.pick("slow answers", [3, 1, 1])],
        bursts=bool(choices.pick("bursts", [2, 1])),
        sweeps=(0.0, 0.1)[choices.pick("sweeps", [9, 1])],
        replacement="head-state" if choices.pick("head-state", [5, 1]) else "provenance",
        abandoned=bool(choices.pick("abandoned commit", [3, 1])),
    )
