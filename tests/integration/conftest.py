"""The command line as a process, and Spark servers and clusters of the tests' own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perago import dev
from perago.connections import LakeFSConnection
from perago.servers.spark import SMALL_JOBS, ConnectServer, ConnectSettings
from support.cluster import StandaloneCluster, standalone_cluster
from support.command_line import Ended, RunPerago, run_perago
from support.connect import Serve, connect_server


@pytest.fixture
def environment(endpoints: dev.Endpoints, tmp_path: Path) -> dict[str, str]:
    """What a user has set who runs ``perago`` against the servers."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path(dev.__file__).parents[1]),
        **endpoints.as_environment(),
        "PERAGO_WORKSPACE_ROOT": str(tmp_path / "workspaces"),
        "PERAGO_OBJECT_CACHE": str(tmp_path / "object-cache"),
    }


@pytest.fixture
def perago(endpoints: dev.Endpoints, tmp_path: Path) -> RunPerago:
    """Run ``perago`` to its end."""
    known = {
        **endpoints.as_environment(),
        "PERAGO_WORKSPACE_ROOT": str(tmp_path / "workspaces"),
        "PERAGO_OBJECT_CACHE": str(tmp_path / "object-cache"),
    }

    def run(*args: str, **extra: str) -> Ended:
        return run_perago(*args, folder=tmp_path, extra={**known, **extra})

    return run


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start Connect servers that belong to no worker; they end with the module."""
    with contextlib.ExitStack() as closing:

        def start(settings: ConnectSettings) -> ConnectServer:
            quick = replace(settings, conf={**SMALL_JOBS, **settings.conf})
            folder = tmp_path_factory.mktemp("connect")
            return closing.enter_context(connect_server(folder, quick))

        yield start


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A standalone cluster of a master and two workers, for the whole session."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_remote(
    cluster: StandaloneCluster, serve: Serve, connection: LakeFSConnection
) -> Iterator[str]:
    """A Connect server on the cluster; it has all of its cores while the module's tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(cluster.python))
        yield serve(ConnectSettings("cluster", connection, cluster.url, cluster.conf)).remote
