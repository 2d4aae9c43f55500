"""Connect servers and clusters that tests start themselves, and workers with Spark tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from integration.spark.cluster import StandaloneCluster, standalone_cluster
from integration.spark.connect import connect_server, gateway_of
from integration.spark_tasks import world as spark_tasks
from integration.spark_tasks.world import SparkWorld
from integration.worker.conftest import site
from integration.worker.harness import WorkerSite
from perago import dev
from perago.connections import LakeFSConnection
from perago.servers.spark import SMALL_JOBS, ConnectServer, ConnectSettings

__all__ = ["site"]
Serve = Callable[[ConnectSettings], ConnectServer]


@pytest.fixture(scope="session")
def gateway(endpoints: dev.Endpoints) -> LakeFSConnection:
    return gateway_of(endpoints)


@pytest.fixture
def spark_site(site: WorkerSite) -> WorkerSite:
    """Workers with Spark tasks and a file task, on a repository with a table."""
    site.world = SparkWorld(site.servers, site.root)
    site.targets, site.home = ("spark_bodies",), spark_tasks.HERE
    return site


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start Connect servers that are nobody's; they end with the module."""
    with contextlib.ExitStack() as closing:

        def start(settings: ConnectSettings) -> ConnectServer:
            quick = replace(settings, conf={**SMALL_JOBS, **settings.conf})
            folder = tmp_path_factory.mktemp("connect")
            return closing.enter_context(connect_server(folder, quick))

        yield start


@pytest.fixture(scope="module")
def cluster_remote(
    cluster: StandaloneCluster, serve: Serve, gateway: LakeFSConnection
) -> Iterator[str]:
    """A Connect server on the cluster; it has all of its cores while the module's tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(cluster.python))
        yield serve(ConnectSettings("cluster", gateway, cluster.url, cluster.conf)).remote


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A standalone cluster of a master and two workers, for the whole session."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running
