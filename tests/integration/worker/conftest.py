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
from integration.worker.harness import Site
from perago import dev


@pytest.fixture
def site(servers: Servers, endpoints: dev.Endpoints, tmp_path: Path) -> Iterator[Site]:
    with (
        gate_before(endpoints.lakefs.endpoint) as lakefs,
        gate_before(endpoints.conductor.server_url) as conductor,
    ):
        place = Site(servers, tmp_path, lakefs, conductor)
        yield place
        for worker in place.workers:
            if not worker.has_ended():
                worker.kill()
            for pid in worker.executors():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
