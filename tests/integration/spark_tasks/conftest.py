"""The embedded stack with Spark, and a fresh repository for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.world import Servers
from integration.spark_tasks.world import SparkWorld
from perago import dev


@pytest.fixture(scope="session")
def spark_remote(spark_stack: dev.Stack) -> str:
    assert spark_stack.endpoints.spark is not None
    return spark_stack.endpoints.spark.remote


@pytest.fixture(scope="session")
def servers(spark_stack: dev.Stack) -> Iterator[Servers]:
    clients = Servers(spark_stack.endpoints)
    yield clients
    clients.close()


@pytest.fixture
def world(servers: Servers, spark_remote: str, tmp_path: Path) -> SparkWorld:
    return SparkWorld(servers, tmp_path / "workspaces", remote=spark_remote)
