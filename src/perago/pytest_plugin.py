"""Fixtures for the tests of authors; pytest finds them where Perago is installed.

Every run of pytest imports this module, so it imports nothing else of Perago until a test asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perago.dev import Stack
    from perago.testing import TaskWorkspace


@pytest.fixture
def perago_workspace(tmp_path: Path) -> TaskWorkspace:
    """An empty workspace in a folder: put files into it and run tasks on it, with no server."""
    from perago.testing import TaskWorkspace

    return TaskWorkspace(tmp_path / "perago-workspace")


@pytest.fixture(scope="session")
def perago_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The real LakeFS and Conductor, for all tests of the run; ``start_spark()`` adds Spark."""
    from perago.dev import Stack

    folder = tmp_path_factory.mktemp("perago") / "stack"
    with Stack.up(folder, spark=False, ephemeral=True) as stack:
        yield stack
