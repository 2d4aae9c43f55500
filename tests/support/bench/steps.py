"""Whole attempts of either product: its worker as a process, a workflow of two steps on it.

Both products run the same module, which is written for both, on the same servers. An attempt takes
from the poll that claimed it to the update that completed it, by Conductor's clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from perago import dev
from perago.connections import LakeFSConnection
from perago.protocol.workspace import StagingBranch
from perago.transfer.engine import Engine
from perago.transfer.inventory import Projection
from perago.transfer.plan import build_sync_plan
from perago.transfer.scan import scan
from support import workflows
from support.bench import peer_package
from support.bench.movers import fill
from support.bench.peers import Peer, lakefs_variables, run
from support.bench.rounds import PeerError
from support.lake_repository import LakeRepository, a_new_repository
from support.waiting import until

FIRST, SECOND = "first step", "second step"
_SETUP_SECONDS = 120.0
_STOP_SECONDS = 60.0
# Runs on both products. The body knows the names of its files, so that it costs next to nothing.
_MODULE = '''
import os
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class Change(BaseModel):
    """How many files to write anew, and how large."""

    count: int
    size: int


class Changed(BaseModel):
    """How many files were written."""

    count: int


@task(name="{name}", owner_email="bench@example.com", workspace=WorkspaceSpec(prefix="/"))
def change(workspace: Path, params: Change) -> Changed:
    """Write some files anew."""
    for number in range(params.count):
        path = workspace / f"{{number // 500:03}}" / f"{{number:06}}"
        path.write_bytes(os.urandom(params.size))
    return Changed(count=params.count)
'''


@dataclass(frozen=True, slots=True)
class Load:
    """What a workspace holds, and what each step changes of it."""

    count: int
    size: int
    changed: int
    # How long a workflow may take.
    seconds: float = 1800.0

    def repository(self, connection: LakeFSConnection, root: Path) -> tuple[LakeRepository, str]:
        """A new repository of random objects, and its commit: no cache knows any of them."""
        lake = a_new_repository(connection, root)
        folder = fill(root / f"seed-{lake.repository}", self.count, self.size)
        plan = build_sync_plan(
            projection=Projection({}, {}), tree=scan(folder), prefix="", is_changed=lambda _: True
        )
        Engine(lake.objects).stage(plan, StagingBranch(lake.repository, "main"), folder)
        return lake, lake.commit()


@dataclass
class Servers:
    """Where a worker finds its servers."""

    connection: LakeFSConnection
    conductor: dev.ConductorEndpoint
    root: Path
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.conductor.server_url, timeout=30, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def variables(self) -> dict[str, str]:
        """What both products read."""
        address = {"CONDUCTOR_SERVER_URL": self.conductor.server_url}
        return {**lakefs_variables(self.connection), **address}


class StepWorker:
    """A worker of one product; its task has a name of its own, so that no other worker takes it."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.name = f"bench_{uuid.uuid4().hex[:12]}"
        self.home = servers.root / self.name
        self.home.mkdir(parents=True)
        (self.home / f"{self.name}.py").write_text(_MODULE.format(name=self.name))
        self._log = self.home / "worker.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.home,
                env=self.environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                # So that all of it can be ended, whatever it does with signals.
                start_new_session=True,
            )

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        raise NotImplementedError

    def problem(self, told: str) -> Exception:
        """The error for an attempt that did not complete."""
        return AssertionError(told)

    def steps(self, load: Load) -> dict[str, float]:
        """Run a workflow of two steps on a new repository; the seconds of each attempt."""
        lake, ref = load.repository(self.servers.connection, self.servers.root)
        params = {"count": load.changed, "size": load.size}
        workspace = {
            "repository": lake.repository,
            "branch": "main",
            # As the package of PyPI spells it; here it is an alias.
            "refType": "commit",
            "ref": ref,
        }
        first = {"workspace": workspace, "params": params}
        second = {"workspace": "${first.output.workspace}", "params": params}
        tasks = [
            workflows.simple_task(self.name, first, reference="first"),
            workflows.simple_task(self.name, second, reference="second"),
        ]
        request = workflows.start_request(f"wf_{self.name}", tasks)
        workflow = self.servers.http.post("/workflow", json=request).raise_for_status().text
        until(lambda: self._is_over(workflow), f"{self.name}: its end", load.seconds, every=0.25)
        found = self._read(workflow, tasks=True)
        if found["status"] != "COMPLETED":
            why = found.get("reasonForIncompletion") or found["status"]
            raise self.problem(f"the workflow did not complete: {why}; {self._log_end()}")
        if len(found["tasks"]) != 2:
            why = found["tasks"][0].get("reasonForIncompletion")
            raise self.problem(f"an attempt failed and was retried: {why}")
        seconds = {
            task["referenceTaskName"]: (task["endTime"] - task["startTime"]) / 1000
            for task in found["tasks"]
        }
        return {FIRST: seconds["first"], SECOND: seconds["second"]}

    def _is_over(self, workflow: str) -> bool:
        if self._process.poll() is not None:
            raise self.problem(f"the worker ended by itself; {self._log_end()}")
        return bool(self._read(workflow)["status"] != "RUNNING")

    def _read(self, workflow: str, *, tasks: bool = False) -> dict[str, Any]:
        query = {"includeTasks": str(tasks).lower()}
        answer = self.servers.http.get(f"/workflow/{workflow}", params=query)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-3:]
        return f"the end of its log: {' | '.join(lines)}"

    def peak_megabytes(self) -> float:
        """The largest peak memory of any of its processes that run."""
        processes = psutil.Process(self._process.pid)
        pids = [processes.pid, *(child.pid for child in processes.children(recursive=True))]
        return max(map(_peak_megabytes, pids))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End whatever is left, its children included."""
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait(10)


def _peak_megabytes(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


class OurWorker(StepWorker):
    """``perago start`` of this checkout, with the settings that it has by default."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "perago", "start", self.name, "-j", "1", "--register"]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not _is_setting(name)}
        return {
            **kept,
            **self.servers.variables(),
            "PERAGO_WORKSPACE_ROOT": str(self.home / "workspaces"),
            "PERAGO_OBJECT_CACHE": str(self.home / "object-cache"),
            "PERAGO_METRICS_ADDRESS": "off",
        }


def _is_setting(name: str) -> bool:
    """Whether a variable would change what a worker does; PERAGO_CACHE is the machine's."""
    return name.startswith(("PERAGO_", "LAKECTL_", "CONDUCTOR_")) and name != "PERAGO_CACHE"


class PeerWorker(StepWorker):
    """``perago start`` of the package of PyPI."""

    def __init__(self, servers: Servers, peer: Peer) -> None:
        self._program = peer.program
        super().__init__(servers)

    def command(self) -> list[str]:
        """Register its TaskDef, without which it does not start, and say how to start it."""
        definition = self.home / "taskdef.json"
        extract = [self._program, "extract", self.name, "--output", str(definition)]
        run(extract, self.environment(), _SETUP_SECONDS)
        described = [json.loads(definition.read_text())]
        answer = self.servers.http.post("/metadata/taskdefs", json=described)
        if answer.is_error:
            raise PeerError(f"Conductor refused its TaskDef: {answer.status_code}")
        return [self._program, "start", self.name, "-j", "1"]

    def environment(self) -> dict[str, str]:
        variables = {
            **self.servers.variables(),
            "PERAGO_WORKSPACE_ROOT": str(self.home / "workspaces"),
            "PERAGO_LOG_ROOT": str(self.home / "logs"),
        }
        return peer_package.environment(variables, self.home)

    def problem(self, told: str) -> Exception:
        return PeerError(told)

    def stop(self) -> None:
        # It does not end on SIGTERM.
        self.kill()


@contextlib.contextmanager
def our_worker(servers: Servers) -> Iterator[StepWorker]:
    worker = OurWorker(servers)
    try:
        yield worker
    finally:
        worker.stop()


@dataclass
class PeerSteps:
    """A contestant: the peer's worker is started by its first round, so that it can be missing."""

    servers: Servers
    peer: Peer
    load: Load
    worker: StepWorker | None = None

    def __call__(self, number: int) -> Mapping[str, float]:
        if self.worker is None:
            self.worker = PeerWorker(self.servers, self.peer)
        # To warm up, the smallest load does.
        return self.worker.steps(self.load if number >= 0 else WARM_UP)

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.stop()


WARM_UP = Load(50, 10_240, 5, 300.0)
