"""The crash matrix: processes of a worker that are killed at every boundary of an attempt.

An attempt is held at a request, before the server gets it or before its reply comes back; then
processes are killed. A request that was held before the server is delivered after the workflow has
ended, as one that a dead process had sent and that was still under way.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from perago import dev
from perago.testing import FaultProxy, HttpFault
from support import workflows
from support.fault_matrix import Contents
from support.gate import gate_before
from support.invariants import Inspector, Target
from support.real_world import Servers
from support.waiting import until
from support.workers import Worker, WorkerSite

Victim = Literal["executor", "supervisor", "both", "group"]
Fence = Literal["soft", "hard"]
Recovery = Literal["replace", "adopt"]
VICTIMS: tuple[Victim, ...] = ("executor", "supervisor", "both", "group")
FENCES: tuple[Fence, ...] = ("soft", "hard")
RECOVERIES: tuple[Recovery, ...] = ("replace", "adopt")

_REPOSITORY = r"/api/v1/repositories/repo-\w+"
_END_SECONDS = 120.0


@dataclass(frozen=True)
class Boundary:
    """A point of an attempt: right before a request is carried out, or right after."""

    name: str
    server: Literal["lakefs", "conductor"]
    method: str
    path: str
    nth: int = 1
    after: bool = False
    # Whether the supervisor sends it and not the executor.
    by_supervisor: bool = False

    @property
    def fault(self) -> HttpFault:
        return HttpFault.hold_after() if self.after else HttpFault.hold_before()

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.name}"


def _both(*args: Any, **kwargs: Any) -> tuple[Boundary, Boundary]:
    before = Boundary(*args, **kwargs)
    return before, replace(before, after=True)


BOUNDARIES: tuple[Boundary, ...] = (
    Boundary("validation", "lakefs", "GET", rf"{_REPOSITORY}/commits/"),
    Boundary("download", "lakefs", "GET", rf"{_REPOSITORY}/refs/[0-9a-f]{{64}}/objects\?path=data"),
    Boundary("body", "lakefs", "", ""),
    Boundary("first fence", "conductor", "POST", r"/api/tasks$", 1),
    *_both("branch", "lakefs", "POST", rf"{_REPOSITORY}/branches$"),
    Boundary("upload", "lakefs", "POST", r"/perago-staging[^/]*/objects\?path="),
    *_both("commit", "lakefs", "POST", r"/perago-staging[^/]*/commits$"),
    Boundary("second fence", "conductor", "POST", r"/api/tasks$", 2),
    Boundary("withdrawal", "lakefs", "GET", rf"{_REPOSITORY}/branches\?"),
    *_both("merge", "lakefs", "POST", r"/refs/perago-staging[^/]*/merge/"),
    Boundary("read-back", "lakefs", "GET", rf"{_REPOSITORY}/refs/[0-9a-f]+/diff/"),
    *_both("cleanup", "lakefs", "DELETE", rf"{_REPOSITORY}/branches/perago-staging"),
    *_both("completion", "conductor", "POST", r"/api/tasks$", 3, by_supervisor=True),
)


@dataclass(frozen=True)
class CrashResult:
    """What became of a cell."""

    cell: str
    seconds: float
    # From the kill to the workflow's end.
    recovery_seconds: float
    attempts: int
    violations: list[str] = field(default_factory=list)


class CrashSite:
    """Workers behind fault proxies; each workflow has a branch of its own."""

    def __init__(
        self, site: WorkerSite, proxies: dict[str, FaultProxy], fence: Fence, recovery: Recovery
    ) -> None:
        self.site, self.proxies, self.fence, self.recovery = site, proxies, fence, recovery
        self.inspector = Inspector(site.servers)
        self.worker: Worker | None = None
        self._number = 0
        if fence == "hard":
            site.world.install_fence()

    def start_worker(self) -> Worker:
        self.worker = self.site.start(
            LAKECTL_SERVER_ENDPOINT_URL=self.proxies["lakefs"].url,
            CONDUCTOR_SERVER_URL=self.proxies["conductor"].url,
            PERAGO_PUBLISH_FENCE=self.fence,
            # What another cell had downloaded would not be, and nobody be held at its download.
            PERAGO_OBJECT_CACHE_BYTES="0",
        )
        return self.worker

    def run(self, victim: Victim, boundary: Boundary) -> CrashResult:
        """Run one workflow in which a process is killed at a boundary."""
        started = time.monotonic()
        self._number += 1
        branch = f"target-{self._number}"
        world = self.site.world
        world.sdk.branches_api.create_branch(
            world.repository, {"name": branch, "source": world.ref}
        )
        signs = self.site.signs / str(self._number)
        signs.mkdir()
        worker = self.worker or self.start_worker()
        workflow = self._hold(worker, boundary, branch, signs)
        killed_at = time.monotonic()
        self._kill(worker, victim)
        if boundary.by_supervisor and victim == "executor":
            self._release()  # the supervisor lives and waits for its own request
        if worker.has_ended():
            self.start_worker()
        (signs / "go").touch()
        tasks = self.site.finish(workflow, _END_SECONDS)
        ended_at = time.monotonic()
        self._release()
        time.sleep(0.5)  # what was held is delivered only now
        wrong = self._judge(workflow, branch, late_branch=boundary.name == "branch")
        return CrashResult(
            f"{victim} killed {boundary}, {self.fence} fence, recovery={self.recovery}",
            ended_at - started,
            ended_at - killed_at,
            len(tasks),
            wrong,
        )

    def finish(self) -> list[str]:
        """Stop the last worker; what is left that must not be."""
        wrong: list[str] = []
        if self.worker is not None and not self.worker.has_ended():
            code = self.worker.stop()
            wrong += [] if code == 0 else [f"the worker ended with {code}"]
        pids = [pid for worker in self.site.workers for pid in worker.executors()]
        wrong += [f"executor {pid} still runs" for pid in pids if _runs(pid)]
        root = self.site.root
        folders = list(root.iterdir()) if root.exists() else []
        return wrong + [f"folder {folder.name} is left" for folder in folders]

    def _hold(self, worker: Worker, boundary: Boundary, branch: str, signs: Path) -> str:
        in_body = boundary.name == "body"
        held = None
        if not in_body:
            proxy = self.proxies[boundary.server]
            held = proxy.inject(boundary.method, boundary.path, boundary.fault, nth=boundary.nth)
        workflow = self._start(branch, str(signs) if in_body else "")
        if held is None:
            until(lambda: (signs / "in-body").exists(), "the body to begin")
        else:
            assert held.happened.wait(60), worker.log_text()
        return workflow

    def _start(self, branch: str, signs: str) -> str:
        params = {"signs": signs} if signs else {}
        payload = {"workspace": self.site.world.workspace(branch=branch), "params": params}
        step = workflows.simple_task(f"p_{self.recovery}", payload)
        name = f"wf_{self.site.domain}"
        request = workflows.start_request(name, [step], domain=self.site.domain)
        return self.site.servers.http.post("/workflow", json=request).raise_for_status().text

    def _kill(self, worker: Worker, victim: Victim) -> None:
        executors = [pid for pid in worker.executors() if _runs(pid)]
        if victim in {"executor", "both"}:
            for pid in executors:
                os.kill(pid, signal.SIGKILL)
        if victim in {"supervisor", "both"}:
            worker.kill()
        if victim == "group":
            worker.end_all()
        if victim != "executor":
            gone = "the orphans to end"
            until(lambda: not any(_runs(pid) for pid in executors), gone, seconds=20)

    def _release(self) -> None:
        for proxy in self.proxies.values():
            proxy.release()
            proxy.clear()

    def _judge(self, workflow: str, branch: str, *, late_branch: bool) -> list[str]:
        world = self.site.world
        target = Target(world.repository, branch, world.ref)
        kept: list[str] = []
        if late_branch:  # created after its execution had ended: it holds nothing
            kept = self.inspector.unused_branches(world.repository, workflow, world.ref)
        check = Contents(self.site.servers).check_tree
        return self.inspector.violations(workflow, target, check, kept=kept)


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


@contextmanager
def crash_site(
    servers: Servers, endpoints: dev.Endpoints, folder: Path, fence: Fence, recovery: Recovery
) -> Iterator[CrashSite]:
    """A site of its own; no worker of it outlives the block."""
    with ExitStack() as closing:
        urls = (endpoints.lakefs.endpoint, endpoints.conductor.server_url)
        lakefs, conductor = (closing.enter_context(FaultProxy(url)) for url in urls)
        # A site has gates as well; the workers' addresses are those of the proxies.
        gates = [closing.enter_context(gate_before(url)) for url in urls]
        site = WorkerSite(servers, folder, gates[0], gates[1], targets=("proof_bodies",))
        try:
            yield CrashSite(site, {"lakefs": lakefs, "conductor": conductor}, fence, recovery)
        finally:
            for worker in site.workers:
                worker.end_all()


def run_chain(
    place: CrashSite, victim: Victim, boundaries: Sequence[Boundary]
) -> list[CrashResult]:
    """Run cells one after the other: the worker that recovers one is the next one's victim."""
    return [place.run(victim, boundary) for boundary in boundaries]
