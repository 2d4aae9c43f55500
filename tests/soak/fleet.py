"""The fleet: servers of its own, proxies before them, workers, and workflows for them."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from lakefs_sdk.exceptions import ApiException

from perago import dev
from perago.testing import FaultProxy
from support import workflows
from support.gate import gate_before
from support.invariants import Target
from support.real_world import Servers
from support.workers import Worker, WorkerSite

WORKERS = 3
SLOTS = 2
_STARTS = 5
_TWO_STEPS = 0.25
_LONGEST_BODY = 2.0


@dataclass
class Running:
    """A workflow that was started."""

    id: str
    target: Target
    started: float
    ended: float | None = None


@dataclass
class Fleet:
    """Everything that runs. Workers come and go; the workflows are kept."""

    stack: dev.Stack
    servers: Servers
    site: WorkerSite
    proxies: dict[str, FaultProxy]
    chooser: random.Random
    begun: float = field(default_factory=time.monotonic)
    workers: list[Worker] = field(default_factory=list)
    started: list[Running] = field(default_factory=list)
    # Everything a worker did that it must not do.
    problems: list[str] = field(default_factory=list)
    pids: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Seconds since the soak began."""
        return time.monotonic() - self.begun

    # Workers

    def start_worker(self) -> None:
        """Start one; faults may hit its start, which then is tried again."""
        for _ in range(_STARTS):
            number = len(self.site.workers)
            try:
                worker = self.site.start(
                    LAKECTL_SERVER_ENDPOINT_URL=self.proxies["lakefs"].url,
                    CONDUCTOR_SERVER_URL=self.proxies["conductor"].url,
                    PERAGO_LOG_LEVEL="info",
                    slots=SLOTS,
                )
            except AssertionError:
                self.site.workers[number].end_all()
                continue
            with self._lock:
                self.workers.append(worker)
            self.note_processes()
            return
        self.problems.append(f"no worker could be started in {_STARTS} tries")

    def alive(self) -> list[Worker]:
        with self._lock:
            return [worker for worker in self.workers if not worker.has_ended()]

    def kill_worker(self, worker: Worker) -> None:
        """SIGKILL to a supervisor; its executors end by themselves."""
        with self._lock:
            self.workers.remove(worker)
        worker.kill()

    def note_workers_that_ended(self) -> int:
        """A worker that was not killed must not have ended; how many did."""
        with self._lock:
            ended = [worker for worker in self.workers if worker.has_ended()]
            self.workers = [worker for worker in self.workers if worker not in ended]
        for worker in ended:
            log = worker.log_text()[-2000:]
            self.problems.append(f"worker {worker.pid} ended with {worker.wait(1)}: {log}")
        return len(ended)

    def executors(self, worker: Worker) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(worker.pid).children()
            return [child for child in children if _is_executor(child)]
        return []

    def note_processes(self) -> None:
        """Remember every process of the workers, to look for it at the end."""
        for worker in self.alive():
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(worker.pid)
                for process in (parent, *parent.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        self.pids[process.pid] = process.create_time()

    def processes_left(self) -> list[int]:
        left: list[int] = []
        for pid, created in self.pids.items():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                same = process.create_time() == created
                if same and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(pid)
        return left

    # Workflows

    def start_workflow(self) -> None:
        """Start one on a branch of its own; some have two steps.

        The servers may be restarted meanwhile: each request is repeated, and made once.
        """
        world = self.site.world
        branch = f"target-{len(self.started)}"
        retried(lambda: self._create_branch(branch))
        first = self._step("one", world.workspace(branch=branch))
        steps = [first]
        if self.chooser.random() < _TWO_STEPS:
            steps.append(self._step("two", "${one.output.workspace}"))
        name = f"wf_{self.site.domain}"
        request = workflows.start_request(name, steps, domain=self.site.domain)
        workflow = retried(lambda: self._start({**request, "correlationId": branch}))
        self.started.append(
            Running(workflow, Target(world.repository, branch, world.ref), self.now())
        )

    def _create_branch(self, name: str) -> None:
        world = self.site.world
        try:
            world.sdk.branches_api.create_branch(
                world.repository, {"name": name, "source": world.ref}
            )
        except ApiException as error:
            if error.status != 409:  # made by a request whose answer was lost
                raise

    def _start(self, request: workflows.Json) -> str:
        """Start a workflow, unless a request whose answer was lost has done so."""
        http = self.servers.http
        path = f"/workflow/{request['name']}/correlated/{request['correlationId']}"
        found = http.get(path, params={"includeClosed": "true"}).raise_for_status().json()
        if found:
            return str(found[0]["workflowId"])
        return http.post("/workflow", json=request).raise_for_status().text

    def _step(self, reference: str, workspace: Any) -> workflows.Json:
        task = self.chooser.choice(["p_replace", "p_adopt"])
        params = {"seconds": round(self.chooser.uniform(0, _LONGEST_BODY), 2)}
        inputs = {"workspace": workspace, "params": params}
        return workflows.simple_task(task, inputs, reference=reference)

    def unfinished(self) -> list[Running]:
        return [running for running in self.started if running.ended is None]

    def look(self) -> None:
        """Let Conductor notice timeouts, and note the workflows that have ended."""
        for running in self.unfinished():
            self.servers.http.put(f"/workflow/decide/{running.id}")
            if self.site.status(running.id) != "RUNNING":
                running.ended = self.now()


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "perago.worker.executor" in process.cmdline()
    return False


@contextmanager
def fleet(seed: int) -> Iterator[Fleet]:
    """Servers, proxies and a site; nothing of them outlives the block."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="perago-soak-")))
        stack = closing.enter_context(dev.Stack.up(folder / "stack", spark=False, ephemeral=True))
        endpoints = stack.endpoints
        servers = Servers(endpoints)
        closing.callback(servers.close)
        urls = (endpoints.lakefs.endpoint, endpoints.conductor.server_url)
        proxies = [closing.enter_context(FaultProxy(url)) for url in urls]
        # A site has gates as well; the workers' addresses are those of the proxies.
        lakefs, conductor = (closing.enter_context(gate_before(url)) for url in urls)
        site = WorkerSite(servers, folder, lakefs, conductor, targets=("proof_bodies",))
        chooser = random.Random(seed)  # noqa: S311  no secret
        try:
            yield Fleet(
                stack,
                servers,
                site,
                dict(zip(("lakefs", "conductor"), proxies, strict=True)),
                chooser,
            )
        finally:
            for worker in site.workers:
                worker.end_all()


def retried(call: Any, seconds: float = 60.0) -> Any:
    """Make a call of this program's own until the servers, which are restarted, answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except Exception as error:
            refused = isinstance(error, httpx.HTTPError) or "urllib3" in type(error).__module__
            if not refused or time.monotonic() > deadline:
                raise
            time.sleep(0.5)
