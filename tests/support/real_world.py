"""Real servers, driven by hand: one repository, workflows of one task, attempts step by step."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import lakefs_sdk
from pydantic import BaseModel

from perago import dev
from perago.conductor.client import ConductorAttempts
from perago.connections import ConductorConnection
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.job import Job, Policy, Ports, StoragePorts, WorkspaceUse
from perago.protocol.outcome import Outcome
from perago.protocol.ports import Delivery, Lake
from perago.protocol.record import Record
from perago.protocol.run import run_attempt
from perago.transfer.engine import Engine
from perago.transfer.workspaces import LocalWorkspaces
from perago.wiring.ports import SystemClock
from perago.worker.report import Reported, report
from support import workflows
from support.lake_sdk import connect

SEED = {
    "data/a.txt": "alpha",
    "data/sub/b.txt": "beta",
    "other/outside.txt": "not yours",
    "database/near.txt": "not yours either",
}


class Params(BaseModel):
    """Whatever a test wants to hand over."""

    text: str = "new"


class Result(BaseModel):
    """Whatever a test wants back."""

    note: str = ""


Body = Callable[[Path, Params], Any]


def write_new(workspace: Path, params: Params) -> Result:
    """A body that changes one file, adds one and removes one."""
    (workspace / "a.txt").write_text(params.text)
    (workspace / "out").mkdir()
    (workspace / "out" / "c.txt").write_text("gamma")
    (workspace / "sub" / "b.txt").unlink()
    return Result(note=params.text)


def write_nothing(workspace: Path, params: Params) -> Result:
    """A body that leaves the workspace as it is."""
    return Result(note=params.text)


def nothing_to_check(_: Path, _warn: Callable[[str], None]) -> None:
    """No guardrail."""


class Servers:
    """Clients of the real servers, opened once per session."""

    def __init__(self, endpoints: dev.Endpoints) -> None:
        self.connection = endpoints.lakefs.connection
        self.sdk = connect(self.connection)
        self.control = LakeFSControl(self.connection)
        self.objects = LakeFSObjects(self.connection)
        self.conductor = ConductorAttempts(ConductorConnection(endpoints.conductor.server_url))
        self.http = httpx.Client(base_url=endpoints.conductor.server_url, timeout=20)

    def close(self) -> None:
        self.http.close()
        self.conductor.close()
        self.objects.close()
        self.control.close()
        self.sdk._api.rest_client.pool_manager.clear()


@dataclass
class RealWorld:
    """One repository on the real LakeFS, one task type on the real Conductor."""

    servers: Servers
    root: Path
    repository: str = field(default_factory=lambda: f"repo-{uuid.uuid4().hex[:12]}")
    task_type: str = field(default_factory=lambda: f"task_{uuid.uuid4().hex[:12]}")
    events: list[PhaseEvent] = field(default_factory=list)
    policy: Policy = field(default_factory=Policy)
    # Where LakeFS has the objects of the repository.
    storage: str = "local://"
    threads: int = 32

    def __post_init__(self) -> None:
        self.sdk, self.http = self.servers.sdk, self.servers.http
        self.control: Lake = self.servers.control
        self.objects, self.conductor = self.servers.objects, self.servers.conductor
        creation = lakefs_sdk.RepositoryCreation(
            name=self.repository,
            storage_namespace=f"{self.storage}{self.repository}",
            default_branch="main",
        )
        self.sdk.repositories_api.create_repository(creation)
        self.ref = self.commit("main", SEED)

    # LakeFS, by hand

    def put(self, branch: str, path: str, text: str) -> None:
        self.sdk.objects_api.upload_object(
            self.repository, branch, path, content=text.encode(), force=True
        )

    def commit(self, branch: str, files: dict[str, str], **metadata: str) -> str:
        for path, text in files.items():
            self.put(branch, path, text)
        creation = lakefs_sdk.CommitCreation(message="by hand", metadata=metadata)
        return str(self.sdk.commits_api.commit(self.repository, branch, creation).id)

    def move(self, commit: str, branch: str = "main") -> None:
        """Put a branch elsewhere, as an operator with the right to do so."""
        self.sdk.experimental_api.hard_reset_branch(self.repository, branch, commit)

    def abandon(self, files: dict[str, str]) -> tuple[str, str]:
        """Start a workflow whose first execution published and died; its id and the commit."""
        workflow = self.start()
        attempt = Attempt(workflow, "dead-task", 0, "step")
        dead = Execution(Claim(attempt, "dead-claim"), "dead")
        record = Record.of(dead, ref=self.ref, params={})
        return workflow, self.commit("main", files, **record.metadata())

    def install_fence(self) -> None:
        """Put the hook into the input commit."""
        self.ref = self.commit("main", {ACTION_PATH: ACTION_TEXT})

    def contents(self, ref: str = "main") -> dict[str, str]:
        return {
            item.key: b"".join(
                self.objects.read(self.repository, ref, item.key, item.size)
            ).decode()
            for item in self.objects.list(self.repository, ref, "")
            if not item.key.startswith("_lakefs_actions/")
        }

    def history(self, branch: str = "main") -> list[str]:
        log = self.sdk.refs_api.log_commits(self.repository, branch, first_parent=True)
        return [str(commit.id) for commit in log.results]

    def branches(self) -> set[str]:
        return {str(b.id) for b in self.sdk.branches_api.list_branches(self.repository).results}

    def tags(self) -> dict[str, str]:
        found = self.sdk.tags_api.list_tags(self.repository).results
        return {str(tag.id): str(tag.commit_id) for tag in found}

    # Conductor, by hand

    def workspace(self, **changes: str) -> dict[str, str]:
        given = {
            "repository": self.repository,
            "branch": "main",
            "ref_type": "commit",
            "ref": self.ref,
        }
        return {**given, **changes}

    def start(self, payload: dict[str, Any] | None = None, **taskdef: Any) -> str:
        """Start a workflow of one task; its id."""
        payload = payload if payload is not None else {"workspace": self.workspace(), "params": {}}
        definition = workflows.taskdef(self.task_type, **taskdef)
        step = workflows.simple_task(self.task_type, payload, taskdef=definition)
        request = workflows.start_request(f"wf_{self.task_type}", [step])
        return self.http.post("/workflow", json=request).raise_for_status().text

    def claim(self) -> Delivery:
        for _ in range(10):
            token = f"test-{uuid.uuid4().hex}"
            found = self.conductor.poll(self.task_type, token, wait_ms=2000)
            if found is not None:
                return found
        raise AssertionError(f"Conductor handed out no {self.task_type}")

    def tasks(self, workflow_id: str) -> list[dict[str, Any]]:
        answer = self.http.get(f"/workflow/{workflow_id}", params={"includeTasks": "true"})
        found: list[dict[str, Any]] = answer.raise_for_status().json()["tasks"]
        return found

    def operate(self, method: str, path: str, body: Any = None) -> None:
        """An operator's action."""
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        self.http.request(method, path, content=content, headers=headers).raise_for_status()

    # Attempts

    def job(self, body: Body = write_new, **changes: Any) -> Job:
        workspace = WorkspaceUse(
            prefix=changes.pop("prefix", "data"),
            read_only=changes.pop("read_only", False),
            check_pre=changes.pop("pre", nothing_to_check),
            check_post=changes.pop("post", nothing_to_check),
        )
        plain = Job(
            name=self.task_type,
            params_model=Params,
            result_model=Result,
            body=body,
            workspace=workspace,
        )
        return replace(plain, **changes)

    def ports(self, lake: Lake | None = None) -> Ports:
        return Ports(
            attempts=self.conductor,
            clock=SystemClock(),
            events=self.events.append,
            policy=self.policy,
            storage=StoragePorts(
                lake or self.control, LocalWorkspaces(self.root, Engine(self.objects, self.threads))
            ),
        )

    def run(
        self,
        job: Job,
        delivery: Delivery,
        *,
        lake: Lake | None = None,
        execution_id: str | None = None,
    ) -> Outcome:
        execution = Execution(delivery.claim, execution_id or uuid.uuid4().hex)
        return run_attempt(job, execution, delivery.payload, self.ports(lake))

    def report(self, delivery: Delivery, outcome: Outcome) -> Reported:
        return report(self.conductor, delivery.claim, outcome, [], seconds=20)

    def attempt(self, job: Job, *, lake: Lake | None = None) -> tuple[Outcome, Reported]:
        """Claim, run and report the next attempt."""
        delivery = self.claim()
        outcome = self.run(job, delivery, lake=lake)
        return outcome, self.report(delivery, outcome)

    # What must hold at the end

    def assert_tidy(self, *, branches: Sequence[str] = ("main",)) -> None:
        """No staging branch and no local folder is left."""
        assert self.branches() == set(branches)
        assert not self.root.exists() or list(self.root.iterdir()) == []

    def assert_untouched(self) -> None:
        """The target branch is where it was, with what it had."""
        assert self.history()[0] == self.ref
        assert self.contents() == SEED


class Interfering:
    """A control plane in which something happens right before or after one call."""

    def __init__(
        self,
        lake: Lake,
        call: str,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._lake = lake
        self._call = call
        self._before = before
        self._after = after
        self._once = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._lake, name)
        if name != self._call:
            return method

        def interfered(*args: Any, **kwargs: Any) -> Any:
            if self._before is not None:
                self._before()
            answer = method(*args, **kwargs)
            if self._after is not None:
                self._after()
            return answer

        return interfered
