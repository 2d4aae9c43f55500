"""Executors and supervisors that are killed at every boundary of an attempt.

`make test` runs two cells, `make soak` all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago import dev
from support.crash_matrix import (
    BOUNDARIES,
    FENCES,
    RECOVERIES,
    VICTIMS,
    Boundary,
    Fence,
    Recovery,
    Victim,
    crash_site,
    run_chain,
)
from support.real_world import Servers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

Keep = Callable[[str, Any], None]
BY_NAME = {str(boundary): boundary for boundary in BOUNDARIES}


class Chains:
    """Runs chains of cells on the run's servers, and fails with every violation at once."""

    def __init__(
        self, servers: Servers, endpoints: dev.Endpoints, folder: Path, keep: Keep
    ) -> None:
        self._servers, self._endpoints = servers, endpoints
        self._folder, self._keep = folder, keep

    def run(
        self, fence: Fence, recovery: Recovery, victim: Victim, boundaries: list[Boundary]
    ) -> None:
        with crash_site(self._servers, self._endpoints, self._folder, fence, recovery) as place:
            results = run_chain(place, victim, boundaries)
            left = place.finish()
        for result in results:
            self._keep("crashes", result)
        assert left + [f"{r.cell}: {v}" for r in results for v in r.violations] == []


@pytest.fixture
def chains(servers: Servers, endpoints: dev.Endpoints, tmp_path: Path, keep: Keep) -> Chains:
    return Chains(servers, endpoints, tmp_path, keep)


def test_a_killed_process_of_the_sample_harms_nothing_and_the_retry_completes(
    chains: Chains,
) -> None:
    chains.run("hard", "adopt", "executor", [BY_NAME["after merge"], BY_NAME["before merge"]])


@pytest.mark.soak
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_process_killed_at_any_boundary_harms_nothing_and_the_retry_completes(
    chains: Chains, victim: Victim, fence: Fence, recovery: Recovery
) -> None:
    chains.run(fence, recovery, victim, list(BOUNDARIES))
