from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.memory_world import InMemoryWorld


@pytest.fixture
def world() -> Iterator[InMemoryWorld]:
    made = InMemoryWorld()
    yield made
    # A fault that never happened would leave its test proving nothing.
    assert made.faults.pending == []
    assert made.workspaces.open_count == 0
    assert made.spark.open_count == 0
