"""The fault matrix: every fault of the network at every call of an attempt, on real servers.

A cell is one workflow of one task, run by this process as a worker runs it, with one fault. It is
retried as Conductor retries, and judged by what LakeFS and Conductor hold in the end.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

from perago import SparkWorkspace
from perago.conductor.client import ConductorAttempts
from perago.connections import ConductorConnection
from perago.errors import BackendError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.names import ACTIONS_FOLDER
from perago.protocol.job import Job
from perago.testing import FaultProxy, HttpFault
from perago.transfer.inventory import PIECE
from perago.worker.heartbeat import Heartbeat
from perago.worker.report import report
from support.invariants import Inspector, Json, Target
from support.lake_servers import BUCKET
from support.presigning_servers import PresigningServers
from support.real_world import SEED, Params, RealWorld, Result, Servers
from support.spark_world import EVENTS, RealSparkWorld

# A file task on a LakeFS that presigns moves its objects straight to and from the object store.
Kind = Literal["file", "spark", "file-presigned"]
ServerName = Literal["lakefs", "conductor", "store"]
SERVER_NAMES: dict[Kind, tuple[ServerName, ...]] = {
    "file": ("lakefs", "conductor"),
    "spark": ("lakefs", "conductor"),
    "file-presigned": ("lakefs", "conductor", "store"),
}

# Longer than a client waits for a reply.
DELAY_SECONDS = 4.0
_READ_SECONDS = 3.0
_LANDING_SECONDS = 1.0
_LEASE_SECONDS: dict[Kind, int] = {"file": 8, "spark": 15, "file-presigned": 10}
_REPORT_SECONDS = 8.0
# Long enough for the retry to have completed when the request arrives.
_LATE_SECONDS: dict[Kind, float] = {"file": 5.0, "spark": 6.0, "file-presigned": 6.0}
_CELL_SECONDS = 90.0
_RETRIES = 5

# Objects that go past the gateway: one in one request, and one in parts and ranges.
_LARGE_SIZES = {"whole.bin": 2 << 20, "large.bin": PIECE + (1 << 20)}

_PLACEHOLDERS = (
    (re.compile(r"(?<=/data/)[0-9a-z]{20}/[^/]+$"), "{folder}/{object}"),
    (re.compile(r"(?<=/staging/pmpu/)[^/]+"), "{upload}"),
    (re.compile(r"perago-staging-[^/]+"), "{staging}"),
    (re.compile(r"repo-[0-9a-f]{12}"), "{repository}"),
    (re.compile(r"task_[0-9a-f]{12}"), "{type}"),
    (re.compile(r"[0-9a-f]{64}"), "{commit}"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "{id}"),
    (re.compile(r"[0-9a-f]{32}"), "{token}"),
)


def faults(kind: Kind) -> list[HttpFault]:
    """Every kind of fault, with times that fit a kind of task."""
    late = _LATE_SECONDS[kind]
    return [
        HttpFault.cut_before(),
        HttpFault.cut_after(),
        HttpFault.cut_inside(),
        HttpFault.answer(429),
        HttpFault.answer(500),
        HttpFault.answer(503),
        HttpFault.answer(504),
        HttpFault.page(),
        HttpFault.delay(DELAY_SECONDS),
        HttpFault.late(late),
        HttpFault.late(late, status=None),
    ]


@dataclass(frozen=True)
class Call:
    """A request of an attempt: its kind, and the how manieth of that kind it is."""

    server: ServerName
    method: str
    path: str
    nth: int

    @property
    def pattern(self) -> str:
        """A regular expression for the paths of such requests."""
        anything = re.sub(r"\\\{\w+\\\}", "[^/?]+", re.escape(self.path))
        return rf"^{anything}(\?|$)"

    def __str__(self) -> str:
        return f"{self.server} {self.method} {self.path} #{self.nth}"


@dataclass(frozen=True)
class Cell:
    """One fault at one call of a kind of task."""

    kind: Kind
    call: Call
    fault: HttpFault

    def __str__(self) -> str:
        return f"{self.kind} task, {self.call}, {self.fault}"


@dataclass(frozen=True)
class CellResult:
    """What became of a cell."""

    cell: str
    seconds: float
    attempts: int
    violations: list[str]


def write_token(workspace: Path, params: Params) -> Result:
    """Leave a tree that tells which execution made it: no two executions' files mix unseen."""
    token = uuid.uuid4().hex
    (workspace / "a.txt").write_text(token)
    (workspace / "by").mkdir()
    (workspace / "by" / f"{token}.txt").write_text(token)
    (workspace / "sub" / "b.txt").unlink()
    return Result(note=token)


def write_large_token(workspace: Path, params: Params) -> Result:
    """The same with objects that go past the gateway."""
    result = write_token(workspace, params)
    for name, text in _large_files(result.note).items():
        (workspace / name).write_text(text)
    return result


def _large_files(token: str) -> dict[str, str]:
    return {name: (token * (size // len(token) + 1))[:size] for name, size in _LARGE_SIZES.items()}


def write_token_table(workspace: SparkWorkspace, params: Params) -> Result:
    """The same as a table, each row of which has the token."""
    token = uuid.uuid4().hex
    workspace.write(workspace.read("raw").selectExpr("id", f"'{token}' AS token"), "clean")
    return Result(note=token)


def _tree_of(token: str) -> dict[str, bytes]:
    wanted = {key: text.encode() for key, text in SEED.items() if key != "data/sub/b.txt"}
    return wanted | {"data/a.txt": token.encode(), f"data/by/{token}.txt": token.encode()}


def _seal(content: bytes) -> str:
    return f"{len(content)} bytes, {hashlib.sha256(content).hexdigest()}"


class Contents:
    """Reads published trees past the proxies, and compares them with one execution's result."""

    def __init__(self, servers: Servers) -> None:
        self._objects = servers.objects

    def check_tree(self, repository: str, ref: str, result: Json) -> list[str]:
        token = result["note"]
        return self._compare(repository, ref, token, _tree_of(token))

    def check_large_tree(self, repository: str, ref: str, result: Json) -> list[str]:
        token = result["note"]
        wanted = _tree_of(token)
        wanted |= {f"data/{name}": text.encode() for name, text in _large_files(token).items()}
        return self._compare(repository, ref, token, wanted)

    def _compare(
        self, repository: str, ref: str, token: str, wanted: dict[str, bytes]
    ) -> list[str]:
        found = self._read(repository, ref)
        if found == wanted:
            return []
        shown = {
            key: content if len(content) < 100 else _seal(content) for key, content in found.items()
        }
        return [f"{ref} holds {shown}, not the result {token}"]

    def check_table(self, repository: str, ref: str, result: Json) -> list[str]:
        token = result["note"]
        found = self._read(repository, ref)
        tables = [pq.read_table(io.BytesIO(data)) for key, data in found.items() if "/part-" in key]
        rows = [row for table in tables for row in table.to_pylist() if "token" in row]
        others = {key: data for key, data in found.items() if not key.startswith("data/")}
        outside = {key: text.encode() for key, text in SEED.items() if not key.startswith("data/")}
        wrong = [] if others == outside else [f"{ref} changes objects outside the prefix"]
        if sorted(row["id"] for row in rows) != [row["id"] for row in EVENTS]:
            wrong.append(f"the table at {ref} holds {rows}")
        if {row["token"] for row in rows} != {token}:
            wrong.append(f"the table at {ref} is not the result {token}: {rows}")
        return wrong

    def _read(self, repository: str, ref: str) -> dict[str, bytes]:
        return {
            item.key: b"".join(self._objects.read(repository, ref, item.key, item.size))
            for item in self._objects.list(repository, ref, "")
            if not item.key.endswith("/") and not item.key.startswith(ACTIONS_FOLDER)
        }


class Scene:
    """A world whose clients reach all servers through proxies, and the task that runs in it."""

    def __init__(self, kind: Kind, world: RealWorld, proxies: dict[ServerName, FaultProxy]) -> None:
        self.kind, self.world, self.proxies = kind, world, proxies
        self.inspector, self.contents = Inspector(world.servers), Contents(world.servers)
        self.raised: list[str] = []
        self.attempts = 0
        # One of them may be shared with scenes before.
        self._seen = {server: len(proxy.exchanges) for server, proxy in proxies.items()}

    def job(self) -> Job:
        world = self.world
        changes = {"landing_seconds": _LANDING_SECONDS, "merge_timeout_seconds": _READ_SECONDS}
        if isinstance(world, RealSparkWorld):
            return replace(world.spark_job(write_token_table), **changes)  # type: ignore[arg-type]
        body = write_large_token if self.kind == "file-presigned" else write_token
        return replace(world.job(body), **changes)  # type: ignore[arg-type]

    def calls(self) -> list[Call]:
        """The requests that the proxies have seen, by kind."""
        found: list[Call] = []
        for server, proxy in self.proxies.items():
            counts: Counter[tuple[str, str]] = Counter()
            for exchange in proxy.exchanges[self._seen[server] :]:
                path = exchange.path.partition("?")[0]
                for pattern, name in _PLACEHOLDERS:
                    path = pattern.sub(name, path)
                counts[exchange.method, path] += 1
                found.append(Call(server, exchange.method, path, counts[exchange.method, path]))
        return found

    def run(self) -> tuple[str, list[str]]:
        """Run one workflow to its end; its id, and what must not be."""
        workflow = self.world.start(
            retryCount=_RETRIES, responseTimeoutSeconds=_LEASE_SECONDS[self.kind]
        )
        self._drive(workflow)
        for proxy in self.proxies.values():
            proxy.await_late(30)
        return workflow, self.raised + self.judge(workflow)

    def _drive(self, workflow: str) -> None:
        """Be the worker and, for timeouts, Conductor's sweeper."""
        job, deadline = self.job(), time.monotonic() + _CELL_SECONDS
        while time.monotonic() < deadline:
            self.world.http.put(f"/workflow/decide/{workflow}")
            if self.inspector.workflow(workflow)["status"] != "RUNNING":
                return
            try:
                self._attempt(job)
            except BackendError:
                continue  # a worker logs it and polls again; the lease decides
            except Exception as error:  # noqa: BLE001  it would have ended a worker
                self.raised.append(f"{type(error).__name__} escaped: {error}")

    def _attempt(self, job: Job) -> None:
        world = self.world
        token = f"matrix-{uuid.uuid4().hex}"
        delivery = world.conductor.poll(world.task_type, token, wait_ms=100)
        if delivery is None:
            return
        self.attempts += 1
        # Past the proxy: when it beats depends on the machine, and the calls must not.
        beats = world.servers.conductor
        with Heartbeat(beats, delivery.claim, _LEASE_SECONDS[self.kind] / 3) as heartbeat:
            heartbeat.begin()
            outcome = world.run(job, delivery)
        report(world.conductor, delivery.claim, outcome, [], seconds=_REPORT_SECONDS)

    def judge(self, workflow: str) -> list[str]:
        """What is wrong after a workflow has ended, read past the proxies."""
        world = self.world
        check = {
            "file": self.contents.check_tree,
            "file-presigned": self.contents.check_large_tree,
            "spark": self.contents.check_table,
        }[self.kind]
        target = Target(world.repository, "main", world.ref)
        kept = {
            str(event.details["branch"])
            for event in world.events
            if event.action in {"staging_branch_kept", "staging_cleanup_failed"}
        }
        if self._has_late_creation():
            kept |= set(self.inspector.unused_branches(world.repository, workflow, world.ref))
        wrong = self.inspector.violations(workflow, target, check, kept=kept)
        left = list(world.root.iterdir()) if world.root.exists() else []
        wrong += [f"folder {folder.name} is left" for folder in left]
        pending = [item for proxy in self.proxies.values() for item in proxy.pending]
        return wrong + [f"the fault at {item.path} never happened" for item in pending]

    def _has_late_creation(self) -> bool:
        """Whether LakeFS was asked for a staging branch after its execution had ended.

        Nothing can prevent the branch then. It holds nothing, and nothing refers to it.
        """
        return any(
            exchange.fault is not None
            and (exchange.fault.kind, exchange.method) == ("late", "POST")
            and exchange.path.endswith("/branches")
            for exchange in self.proxies["lakefs"].exchanges
        )


@contextmanager
def scene(kind: Kind, servers: Servers, remote: str, root: Path) -> Iterator[Scene]:
    """A new world behind proxies of its own."""
    world: RealWorld
    if kind == "spark":
        world = RealSparkWorld(servers, root, remote=remote)
    elif isinstance(servers, PresigningServers):
        # One thread: which objects share a request for addresses must not depend on the machine.
        world = RealWorld(servers, root, storage=f"s3://{BUCKET}/", threads=1)
        large = {f"data/{name}": text for name, text in _large_files("seed").items()}
        world.ref = world.commit("main", large)
    else:
        world = RealWorld(servers, root)
    with ExitStack() as closing:
        lakefs = closing.enter_context(FaultProxy(servers.connection.server))
        conductor = closing.enter_context(FaultProxy(str(servers.http.base_url)))
        to_lakefs = replace(
            servers.connection,
            endpoint=lakefs.url,
            read_timeout=_READ_SECONDS,
            retry_seconds=4.0,
        )
        to_conductor = ConductorConnection(conductor.url, read_timeout=_READ_SECONDS)
        control, objects = LakeFSControl(to_lakefs), LakeFSObjects(to_lakefs)
        attempts = ConductorAttempts(to_conductor)
        for client in (control, objects, attempts):
            closing.callback(client.close)
        world.control, world.objects, world.conductor = control, objects, attempts
        proxies: dict[ServerName, FaultProxy] = {"lakefs": lakefs, "conductor": conductor}
        if isinstance(servers, PresigningServers):
            proxies["store"] = servers.store
            closing.callback(servers.store.clear)
        yield Scene(kind, world, proxies)


def record_calls(kind: Kind, servers: Servers, remote: str, root: Path) -> list[Call]:
    """The calls of one good attempt."""
    with scene(kind, servers, remote, root) as stage:
        _, wrong = stage.run()
        assert wrong == []
        assert stage.attempts == 1
        return stage.calls()


def run_cell(cell: Cell, servers: Servers, remote: str, root: Path) -> CellResult:
    started = time.monotonic()
    with scene(cell.kind, servers, remote, root) as stage:
        call = cell.call
        stage.proxies[call.server].inject(call.method, call.pattern, cell.fault, nth=call.nth)
        _, wrong = stage.run()
        return CellResult(str(cell), time.monotonic() - started, stage.attempts, wrong)


def cells(kind: Kind, calls: Sequence[Call]) -> list[Cell]:
    return [Cell(kind, call, fault) for call in calls for fault in faults(kind)]
