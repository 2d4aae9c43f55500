"""What a worker uses while there is nothing to do: supervisor, wardens and executors together."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from perago import dev
from support.bench.results import Book
from support.bench.rounds import hold
from support.bench.table import OURS
from support.workers import WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

TYPES, SLOTS, SECONDS = 14, 3, 60.0
_MODULE = """
from pydantic import BaseModel

from perago import task


class Empty(BaseModel):
    '''Nothing.'''


def _define(number):
    @task(name=f"idle_{number}", owner_email="tests@example.com")
    def body(params: Empty) -> Empty:
        '''Do nothing.'''
        return params

    return body


"""


def cpu_seconds(pid: int) -> dict[str, float]:
    """CPU time of a process and of all below it, by what they are."""
    used: dict[str, float] = {}
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        is_warden = process.ppid() == pid
        kind = "supervisor" if process == root else "wardens" if is_warden else "executors"
        times = process.cpu_times()
        used[kind] = used.get(kind, 0.0) + times.user + times.system
    return used


def shares_of(pid: int) -> dict[str, float]:
    """What each kind of process uses of a core, in percent, over a minute."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(SECONDS)
    after, took = cpu_seconds(pid), time.monotonic() - began
    shares = {kind: 100 * (after[kind] - before[kind]) / took for kind in after}
    return {"% of a core": sum(shares.values()), **shares}


@pytest.mark.bench("idle")
def test_an_idle_worker_uses_little(
    site: WorkerSite, endpoints: dev.Endpoints, rounds: int, book: Book, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tasks = "".join(f"task_{number} = _define({number})\n" for number in range(TYPES))
    (home / "idle_tasks.py").write_text(_MODULE + tasks)
    site.home, site.targets = home, ("idle_tasks",)
    worker = site.start(
        slots=SLOTS,
        PERAGO_LOG_LEVEL="info",
        # Without the gates of the other tests: they would be another client.
        CONDUCTOR_SERVER_URL=endpoints.conductor.server_url,
    )
    time.sleep(5)  # what starting left to do
    contest = hold(rounds, {OURS: lambda _: shares_of(worker.pid)})
    assert worker.stop() == 0
    book.record("idle", contest, {"processor": contest.middle("% of a core", OURS)})
