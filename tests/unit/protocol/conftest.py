from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.protocol.bench import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    # A fault that never happened would leave its test proving nothing.
    assert made.faults.pending == []
    assert made.workspaces.open_count == 0
    assert made.spark.open_count == 0
