"""A site per test: gates before the servers, and no worker left behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.world import Servers
from integration.worker.gate import gate_before
from integration.worker.harness import WorkerSite
from perago import dev


@contextlib.contextmanager
def site_on(servers: Servers, endpoints: dev.Endpoints, folder: Path) -> Iterator[WorkerSite]:
    """A site on running servers; no worker of it outlives the block."""
    with (
        gate_before(endpoints.lakefs.endpoint) as lakefs,
        gate_before(endpoints.conductor.server_url) as conductor,
    ):
        place = WorkerSite(servers, folder, lakefs, conductor)
        yield place
        for worker in place.workers:
            if not worker.has_ended():
                worker.kill()
            for pid in worker.executors():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def site(servers: Servers, endpoints: dev.Endpoints, tmp_path: Path) -> Iterator[WorkerSite]:
    with site_on(servers, endpoints, tmp_path) as place:
        yield place
