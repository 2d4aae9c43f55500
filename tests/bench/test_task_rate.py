"""Tiny workspace-free tasks per second, beside the SDK's own task handler, in one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from perago import dev
from support import sdk_worker
from support.workers import WorkerSite

pytestmark = [pytest.mark.bench, pytest.mark.servers, pytest.mark.timeout(900)]

TASKS, BATCH, PROCESSES = 400, 20, 4


def rate(place: WorkerSite) -> float:
    """Start all tasks, wait for all of them, count them per second."""
    started = time.perf_counter()
    for workflow in [place.fork(range(n, n + BATCH)) for n in range(0, TASKS, BATCH)]:
        place.await_end(workflow, 600)
    return TASKS / (time.perf_counter() - started)


def test_task_rate_beside_the_sdk(site: WorkerSite, endpoints: dev.Endpoints) -> None:
    # Without the gates of the other tests: both workers talk to Conductor directly.
    address = endpoints.conductor.server_url
    worker = site.start(slots=PROCESSES, PERAGO_LOG_LEVEL="info", CONDUCTOR_SERVER_URL=address)
    ours = rate(site)
    assert worker.stop() == 0
    handler = subprocess.Popen(
        [sys.executable, sdk_worker.__file__, site.domain, str(PROCESSES)],
        env={**site.environment(), "CONDUCTOR_SERVER_URL": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert handler.stdout is not None
    try:
        handler.stdout.readline()
        theirs = rate(site)
    finally:
        os.killpg(handler.pid, signal.SIGKILL)
        handler.wait(10)
        handler.stdout.close()
    print(
        f"\n{TASKS} tasks, {PROCESSES} processes: perago {ours:.1f}/s, SDK {theirs:.1f}/s, "
        f"ratio {ours / theirs:.2f}"
    )
