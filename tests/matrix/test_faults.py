"""Every fault of the network at every call of an attempt: to LakeFS, Conductor, the object store.

`make test` runs a sample, `make test-all` one with an object store too, `make soak` every cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fault_matrix import (
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
SAMPLE: dict[Kind, int] = {"file": 22, "spark": 3, "file-presigned": 3}
MARKS: dict[Kind, list[pytest.MarkDecorator]] = {
    "file": [],
    "spark": [pytest.mark.spark],
    "file-presigned": [pytest.mark.s3],
}
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
    request: pytest.FixtureRequest,
    kind: Kind,
    servers_of: Callable[[Kind], Servers],
    tmp_path: Path,
    keep: Keep,
) -> Runner:
    remote = request.getfixturevalue("spark_remote") if kind == "spark" else ""
    return Runner(servers_of(kind), remote, tmp_path, keep)


@pytest.mark.xdist_group("fault-matrix")
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        # Another LakeFS is started for those past the gateway.
        pytest.param(
            kind, number, marks=[*MARKS[kind], *([pytest.mark.slow] * (kind == "file-presigned"))]
        )
        for kind, size in SAMPLE.items()
        for number in range(size)
    ],
)
def test_a_fault_of_the_sample_harms_nothing_and_the_retry_completes(
    runner: Runner, calls: Calls, kind: Kind, number: int
) -> None:
    """The sample has each fault about twice, at calls that the seed chooses.

    Of a task whose objects go past the gateway those to the store are chosen: the others are as in
    any file task.
    """
    chooser = random.Random(SEED_OF_SAMPLE)  # noqa: S311  a sample, not a secret
    every, last = faults(kind), SERVER_NAMES[kind][-1]
    among = [call for call in calls(kind) if kind != "file-presigned" or call.server == last]
    chosen = [
        Cell(kind, chooser.choice(among), every[turn % len(every)]) for turn in range(SAMPLE[kind])
    ]
    runner.run([chosen[number]])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "server"),
    [
        pytest.param(kind, server, marks=MARKS[kind])
        for kind, servers in SERVER_NAMES.items()
        for server in servers
    ],
)
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
