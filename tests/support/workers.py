"""Workers as real processes, on real servers, driven by real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from perago import dev
from perago.servers.spark import SMALL_JOBS
from support import workflows
from support.gate import Gate, gate_before
from support.real_world import RealWorld, Servers
from support.waiting import PATIENCE, until

# The modules with the tasks that workers run; each does what its params say.
TASK_MODULES = Path(__file__).parent / "task_modules"
# The requests to LakeFS that mark a phase of an attempt.
PHASES = {
    "download": r"GET /api/v1/repositories/repo-\w+/refs/[0-9a-f]{64}/objects\?path=data",
    "staging": r"POST /api/v1/repositories/repo-\w+/branches/perago-staging[\w-]+/objects\?path=",
    "publish": r"POST /api/v1/repositories/repo-\w+/refs/perago-staging[\w-]+/merge/main",
}


# With what is on the path of this process already, such as another checkout.
_FIRST_IMPORTED = [
    str(Path(__file__).with_name("supervisor_only")),
    *filter(None, [os.environ.get("PYTHONPATH")]),
]


def conf_variables(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark settings as a worker's environment has them."""
    return {f"PERAGO_SPARK_CONF_{key.replace('.', '__')}": value for key, value in conf.items()}


@dataclass
class WorkerSite:
    """Where workers run: a domain of their own, a workspace root, gates before the servers."""

    servers: Servers
    folder: Path
    lakefs: Gate
    conductor: Gate
    domain: str = field(default_factory=lambda: f"d{uuid.uuid4().hex[:12]}")
    workers: list[Worker] = field(default_factory=list)
    # The modules that workers are started with, and the folder they lie in.
    targets: tuple[str, ...] = ("bodies",)
    home: Path = TASK_MODULES
    # More options of `perago start`.
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.root = self.folder / "workspaces"
        self.signs = self.folder / "signs"
        self.signs.mkdir()
        self.world = RealWorld(self.servers, self.root)

    def environment(self) -> dict[str, str]:
        connection = self.servers.connection
        secret = connection.secret_access_key.get_secret_value()
        # Where servers are obtained from is the machine's business, all else is the test's.
        kept = {"PERAGO_CACHE", "PERAGO_MAVEN_REPOSITORY"}
        return {
            **{
                key: value
                for key, value in os.environ.items()
                if key in kept or not key.startswith("PERAGO_")
            },
            "PYTHONPATH": os.pathsep.join(_FIRST_IMPORTED),
            "LAKECTL_SERVER_ENDPOINT_URL": self.lakefs.url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": connection.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": secret,
            "CONDUCTOR_SERVER_URL": self.conductor.url,
            "PERAGO_WORKSPACE_ROOT": str(self.root),
            "PERAGO_OBJECT_CACHE": str(self.folder / "object-cache"),
            "PERAGO_SPARK_LOGS": str(self.folder / "spark-logs"),
            "PERAGO_METRICS_ADDRESS": "off",
            "PERAGO_LOG_LEVEL": "debug",
            **conf_variables(SMALL_JOBS),
        }

    def start(
        self, more: Mapping[str, str] | None = None, *, slots: int = 1, **environment: str
    ) -> Worker:
        """Start a worker and wait until its executors are ready."""
        worker = Worker(self, slots, {**self.environment(), **(more or {}), **environment})
        self.workers.append(worker)
        started = f"{slots} executors of worker {worker.pid} to start"
        until(lambda: worker.count("executor_started") >= slots or worker.has_ended(), started)
        assert not worker.has_ended(), worker.log_text()
        return worker

    def workflow(self, task: str = "w_write", **params: Any) -> str:
        """Start a workflow of one task, for this site's workers only."""
        if task != "w_plain":
            payload = {"workspace": self.world.workspace(), "params": params}
        else:
            payload = {"params": params}
        return self._start([workflows.simple_task(task, payload)])

    def fork(self, numbers: Sequence[int], task: str = "w_plain") -> str:
        """Start a workflow that forks into many tasks without a workspace, one per number."""
        params = {"signs": str(self.signs)}
        steps = [
            workflows.simple_task(task, {"params": {**params, "text": str(n)}}, reference=f"t{n}")
            for n in numbers
        ]
        return self._start(workflows.in_parallel(steps))

    def _start(self, tasks: Sequence[workflows.Json]) -> str:
        request = workflows.start_request(f"wf_{self.domain}", tasks, domain=self.domain)
        answer = self.servers.http.post("/workflow", json=request)
        return answer.raise_for_status().text

    def status(self, workflow: str) -> str:
        return self.end_of(workflow)[0]

    def end_of(self, workflow: str) -> tuple[str, str | None]:
        """The status of a workflow, and why it is not complete."""
        answer = self.servers.http.get(f"/workflow/{workflow}", params={"includeTasks": "false"})
        found = answer.raise_for_status().json()
        return str(found["status"]), found.get("reasonForIncompletion")

    def finish(self, workflow: str, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """Wait for a workflow's end, nudging Conductor to notice timeouts; its tasks."""

        def ended() -> bool:
            self.servers.http.put(f"/workflow/decide/{workflow}")
            return self.status(workflow) != "RUNNING"

        until(ended, f"the end of workflow {workflow}", seconds)
        return self.world.tasks(workflow)

    def await_end(self, workflow: str, seconds: float = PATIENCE) -> None:
        """Wait for a workflow's end, which needs no nudge."""
        until(lambda: self.status(workflow) != "RUNNING", f"the end of {workflow}", seconds)

    def await_body(self) -> None:
        until(lambda: (self.signs / "in-body").exists(), "the body to begin")

    def go(self) -> None:
        (self.signs / "go").touch()

    def runs(self) -> int:
        path = self.signs / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def assert_nothing_left(self) -> None:
        """No process of any worker, no attempt directory."""
        for worker in self.workers:
            assert worker.has_ended(), f"worker {worker.pid} still runs"
            left = [pid for pid in worker.executors() if psutil.pid_exists(pid)]
            assert left == [], f"executors still run: {left}"
        leftovers = list(self.root.iterdir()) if self.root.exists() else []
        assert leftovers == []


class Worker:
    """``perago start`` as a process."""

    def __init__(self, site: WorkerSite, slots: int, environment: dict[str, str]) -> None:
        number = len(site.workers)
        self._log = site.folder / f"worker-{number}.log"
        options = ["-j", str(slots), "--domain", site.domain, "--register", *site.options]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perago", "start", *site.targets, *options],
                cwd=site.home,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float = PATIENCE) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end:\n{self.log_text()}") from None

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL to the supervisor itself."""
        self._process.kill()
        self._process.wait(10)

    def end_all(self) -> None:
        """SIGKILL to whatever is left of it: the supervisor, its executors and their children."""
        if not self.has_ended():
            self.kill()
        for pid in self.executors():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def log_text(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        texts = self.log_text().splitlines()
        return [json.loads(text) for text in texts if text.startswith("{")]

    def count(self, action: str) -> int:
        return sum(line.get("action") == action for line in self.lines())

    def executors(self) -> list[int]:
        """The pids of all executors it ever started."""
        return [
            int(line["pid"]) for line in self.lines() if line.get("action") == "executor_started"
        ]


@contextlib.contextmanager
def site_on(servers: Servers, endpoints: dev.Endpoints, folder: Path) -> Iterator[WorkerSite]:
    """A site on running servers; no worker of it outlives the block."""
    with (
        gate_before(endpoints.lakefs.endpoint) as lakefs,
        gate_before(endpoints.conductor.server_url) as conductor,
    ):
        place = WorkerSite(servers, folder, lakefs, conductor)
        try:
            yield place
        finally:
            for worker in place.workers:
                worker.end_all()
