"""Every fault of the network at every call of an attempt, to LakeFS and to Conductor.

`make test` runs a sample, `make soak` every cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fault_matrix import (
    KINDS,
    SERVER_NAMES,
    Call,
    Cell,
    Kind,
    ServerName,
    cells,
    faults,
    run_cell,
)
from support.real_world import Servers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

SEED_OF_SAMPLE = 20
SAMPLE = {"file": 22, "spark": 3}
Calls = Callable[[Kind], list[Call]]
Keep = Callable[[str, Any], None]


class Runner:
    """Runs cells, keeps their results, and fails with every violation at once."""

    def __init__(self, servers: Servers, remote: str, folder: Path, keep: Keep) -> None:
        self._servers, self._remote, self._folder, self._keep = servers, remote, folder, keep

    def run(self, chosen: list[Cell]) -> None:
        wrong: list[str] = []
        for number, cell in enumerate(chosen):
            result = run_cell(cell, self._servers, self._remote, self._folder / str(number))
            self._keep("faults", result)
            wrong += [f"{cell}: {violation}" for violation in result.violations]
        assert wrong == []


@pytest.fixture
def runner(
    request: pytest.FixtureRequest, kind: Kind, servers: Servers, tmp_path: Path, keep: Keep
) -> Runner:
    remote = request.getfixturevalue("spark_remote") if kind == "spark" else ""
    return Runner(servers, remote, tmp_path, keep)


def of(kinds: tuple[Kind, ...], *more: Any) -> list[Any]:
    """Parameters per kind of task; those with Spark need its server."""
    marks = {"file": [], "spark": [pytest.mark.spark]}
    return [pytest.param(kind, *more, marks=marks[kind], id=kind) for kind in kinds]


@pytest.mark.xdist_group("fault-matrix")
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, marks=[pytest.mark.spark] if kind == "spark" else [])
        for kind, size in SAMPLE.items()
        for number in range(size)
    ],
)
def test_a_fault_of_the_sample_harms_nothing_and_the_retry_completes(
    runner: Runner, calls: Calls, kind: Kind, number: int
) -> None:
    """The sample has each fault about twice, at calls that the seed chooses."""
    chooser = random.Random(SEED_OF_SAMPLE)  # noqa: S311  a sample, not a secret
    every = faults(kind)
    chosen = [
        Cell(kind, chooser.choice(calls(kind)), every[turn % len(every)])
        for turn in range(SAMPLE[kind])
    ]
    runner.run([chosen[number]])


@pytest.mark.soak
@pytest.mark.parametrize("kind", of(KINDS))
@pytest.mark.parametrize("server", SERVER_NAMES)
@pytest.mark.parametrize("turn", range(len(faults("file"))))
def test_a_fault_at_any_call_harms_nothing_and_the_retry_completes(
    runner: Runner, calls: Calls, kind: Kind, server: ServerName, turn: int
) -> None:
    fault = faults(kind)[turn]
    runner.run(
        [
            cell
            for cell in cells(kind, calls(kind))
            if cell.fault == fault and cell.call.server == server
        ]
    )
