"""Workers with Spark tasks."""

from __future__ import annotations

import pytest

from support.spark_world import RealSparkWorld
from support.workers import WorkerSite


@pytest.fixture
def spark_site(site: WorkerSite) -> WorkerSite:
    """Workers with Spark tasks and a file task, on a repository with a table."""
    site.world = RealSparkWorld(site.servers, site.root)
    site.targets = ("spark_bodies",)
    return site
