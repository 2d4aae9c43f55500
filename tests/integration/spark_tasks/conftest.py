"""A world of Spark tasks, on the run's Spark server or on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.real_world import Servers
from support.spark_world import RealSparkWorld


@pytest.fixture
def world(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> RealSparkWorld:
    """On the server that the fixture of the parameter's name gives the address of."""
    remote = request.getfixturevalue(getattr(request, "param", "spark_remote"))
    return RealSparkWorld(servers, tmp_path / "workspaces", remote=remote)
