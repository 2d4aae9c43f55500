"""The protocol under thousands of schedules: late landings, crashes, lost requests and replies."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from support.simulation.choices import Choices, shrink
from support.simulation.mutants import mutated, no_withdrawal
from support.simulation.world import Simulation, simulate

SCHEDULES = int(os.environ.get("PERAGO_SIMULATION_SCHEDULES", "3000"))
_PARTS = 6


def failure_of(schedule: list[int]) -> str | None:
    """What a schedule shows, or None when every invariant holds."""
    try:
        simulate(schedule=schedule)
    except AssertionError as error:
        return str(error)
    return None


def failing_choices(seed: int) -> list[int] | None:
    """The schedule of a seed, if it breaks an invariant."""
    with closing(Simulation(Choices(seed=seed))) as simulation:
        try:
            simulation.run()
        except AssertionError:
            return simulation.choices.made
    return None


def explain(seed: int) -> str:
    """The smallest schedule found that fails as this seed does, and how to run it again."""
    failing = failing_choices(seed) or []
    smallest = shrink(failing, lambda tried: failure_of(tried) is not None)
    return f"seed {seed}; replay with simulate(schedule={smallest})\n{failure_of(smallest)}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_schedule_breaks_an_invariant(part: int) -> None:
    for seed in range(part, SCHEDULES, _PARTS):
        try:
            simulate(seed=seed)
        except AssertionError:
            pytest.fail(explain(seed))


def test_a_schedule_replays_to_the_same_end() -> None:
    for seed in range(25):
        first = simulate(seed=seed)
        again = simulate(schedule=first.choices.made)
        assert again.invariants.lines == first.invariants.lines


def test_nothing_goes_wrong_in_the_schedule_of_calm_choices() -> None:
    calm = simulate(schedule=[])
    assert not any(calm.choices.made)
    expected = ("a worker claims", "E1 calls ", "  ")
    assert [line for line in calm.invariants.lines if not line.startswith(expected)] == []
    assert calm.invariants.completed == calm.invariants.head


def test_a_failing_schedule_is_made_smaller() -> None:
    with mutated(no_withdrawal):
        failing = next(made for seed in range(600) if (made := failing_choices(seed)))
        smallest = shrink(failing, lambda tried: failure_of(tried) is not None, tries=100)
        assert failure_of(smallest) is not None
    assert sum(map(bool, smallest)) < sum(map(bool, failing))
