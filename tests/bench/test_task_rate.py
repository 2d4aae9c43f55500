"""Tiny workspace-free tasks per second, beside the SDK's own task handler, in one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from perago import dev
from support import sdk_worker
from support.bench.results import Book
from support.bench.rounds import hold, seconds_of
from support.bench.table import OURS
from support.workers import WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

TASKS, BATCH, PROCESSES = 400, 20, 4
HANDLER = "conductor-python's task handler"


def run_all(place: WorkerSite) -> None:
    """Start all tasks, and wait for all of them."""
    for workflow in [place.fork(range(n, n + BATCH)) for n in range(0, TASKS, BATCH)]:
        place.await_end(workflow, 600)


@pytest.mark.bench("tiny-tasks")
def test_task_rate_beside_the_sdk(
    site: WorkerSite, endpoints: dev.Endpoints, rounds: int, book: Book
) -> None:
    """One worker at a time: an idle one polls, and would be in the way of the other."""
    # Without the gates of the other tests: both workers talk to Conductor directly.
    address = endpoints.conductor.server_url

    def ours(_: int) -> dict[str, float]:
        worker = site.start(slots=PROCESSES, PERAGO_LOG_LEVEL="info", CONDUCTOR_SERVER_URL=address)
        seconds = seconds_of(lambda: run_all(site))
        assert worker.stop() == 0
        return {"tasks": seconds}

    def theirs(_: int) -> dict[str, float]:
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
            return {"tasks": seconds_of(lambda: run_all(site))}
        finally:
            os.killpg(handler.pid, signal.SIGKILL)
            handler.wait(10)
            handler.stdout.close()

    contest = hold(rounds, {OURS: ours, HANDLER: theirs})
    book.record("tiny-tasks", contest, {"tasks": contest.ratio(HANDLER, OURS, "tasks")})
