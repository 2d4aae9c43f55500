"""The simulation must find what it exists for: with a protection gone, a schedule breaks."""

from __future__ import annotations

from typing import Any

import pytest

from support.simulation.mutants import MUTATIONS, Mutation, mutated
from support.simulation.world import simulate

_MOST_SCHEDULES = 600


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mutation", "focus"), MUTATIONS, ids=[mutation.__name__ for mutation, _ in MUTATIONS]
)
def test_without_a_protection_an_invariant_breaks(
    mutation: Mutation, focus: dict[str, Any]
) -> None:
    with mutated(mutation):
        for seed in range(_MOST_SCHEDULES):
            try:
                simulate(seed=seed, **focus)
            except AssertionError:
                return
    pytest.fail(f"{_MOST_SCHEDULES} schedules without this protection, and none broke")
