"""Fixtures for the tests of authors; pytest finds them where Perago is installed.

Every run of pytest imports this module, so it imports nothing else of Perago until a test asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

    from perago.dev import Stack
    from perago.testing import TaskWorkspace


@pytest.fixture
def perago_workspace(tmp_path: Path) -> TaskWorkspace:
    """An empty workspace in a folder: put files into it and run tasks on it, with no server."""
    from perago.testing import TaskWorkspace

    return TaskWorkspace(tmp_path / "perago-workspace")


@pytest.fixture(scope="session")
def perago_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The real LakeFS and Conductor, for all tests of the run."""
    from perago.dev import Stack

    folder = tmp_path_factory.mktemp("perago") / "stack"
    with Stack.up(folder, spark=False, ephemeral=True) as stack:
        yield stack


@pytest.fixture(scope="session")
def perago_spark(perago_stack: Stack) -> Iterator[SparkSession]:
    """A session on the real Spark of the stack, which is started for it; for Spark tasks."""
    from perago.spark.session import close_session, open_session

    perago_stack.start_spark()
    endpoint = perago_stack.endpoints.spark
    assert endpoint is not None  # noqa: S101  narrows the type; it was just started
    session = open_session(endpoint.remote, uuid.uuid4().hex)
    try:
        yield session
    finally:
        close_session(session)
