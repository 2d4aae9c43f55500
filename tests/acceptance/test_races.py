"""Executions that race for one target: what the hard fence guarantees and the soft one does not."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from perago.protocol.outcome import Completed, Failed, Outcome
from support.real_world import Interfering, Params, RealWorld, Result
from support.waiting import PATIENCE, joined

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

RACERS = 8


def write_own_file(workspace: Path, params: Params) -> Result:
    """Changes of different executions are disjoint: LakeFS sees no conflict between them."""
    (workspace / f"{uuid.uuid4().hex}.txt").write_text("mine")
    return Result()


@dataclass
class Round:
    """What became of one race."""

    outcomes: list[Outcome]
    ref: str
    history: list[str]

    @property
    def completed(self) -> list[Completed]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Completed)]

    @property
    def errors(self) -> Counter[str]:
        failed = [outcome for outcome in self.outcomes if isinstance(outcome, Failed)]
        return Counter(outcome.reason.partition(":")[0] for outcome in failed)


def race(world: RealWorld) -> Round:
    """Hold every execution until all have passed the publish fence, then let them merge."""
    ref = world.ref = world.history()[0]
    gate = threading.Barrier(RACERS, timeout=60)
    outcomes: list[Outcome] = []

    def run() -> None:
        delivery = world.claim()
        lake = Interfering(world.control, "merge", before=lambda: _arrive(gate))
        outcome = world.run(world.job(write_own_file), delivery, lake=lake)
        world.report(delivery, outcome)
        outcomes.append(outcome)

    for _ in range(RACERS):
        world.start(retryCount=0)
    threads = [threading.Thread(target=run) for _ in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    assert len(outcomes) == RACERS
    return Round(outcomes, ref, world.history())


def _arrive(gate: threading.Barrier) -> None:
    gate.wait(PATIENCE)


@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_with_the_hard_fence_exactly_one_merge_lands_each_time(
    world: RealWorld, rounds: int
) -> None:
    world.install_fence()
    for _ in range(rounds):
        result = race(world)
        assert len(result.completed) == 1
        assert result.errors == {"PublishFenceError": RACERS - 1}
        winner = result.completed[0].output["workspace"]["ref"]
        assert result.history[:2] == [winner, result.ref]
    world.assert_tidy()


@pytest.mark.parametrize("rounds", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_without_the_hook_merges_pile_up_and_the_read_back_detects_it(
    world: RealWorld, rounds: int
) -> None:
    """Why the fence is called soft: all passed the check, and LakeFS merges them on each other."""
    piled_up = 0
    for _ in range(rounds):
        result = race(world)
        landed = result.history.index(result.ref)
        mixed = result.errors["MixedPublicationError"]
        # Whoever merged on top of somebody else found out; nobody else was told a story.
        assert len(result.completed) == 1
        assert result.history[landed - 1] == result.completed[0].output["workspace"]["ref"]
        assert landed == 1 + mixed
        piled_up += mixed
        assert set(result.errors) <= {"MixedPublicationError", "BackendUnavailableError"}
        for branch in world.branches() - {"main"}:  # kept as evidence
            world.sdk.branches_api.delete_branch(world.repository, branch)
    assert piled_up > 0
