"""Conductor, real or in memory, with what the cases need to arrange and to look."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from perago.conductor.client import ConductorAttempts
from perago.connections import ConductorConnection
from perago.errors import ConflictError
from perago.protocol.identity import Claim
from perago.protocol.outcome import Outcome
from perago.protocol.ports import AttemptSnapshot, Delivery
from perago.testing import InMemoryConductor, ManualClock, TaskSettings
from support import workflows

PAYLOAD = {"params": {"depth": {"of": [1, 2]}}}


class Attempts(Protocol):
    """What both sides implement."""

    def poll(
        self, task_type: str, token: str, *, domain: str | None = None, wait_ms: int = 0
    ) -> Delivery | None: ...
    def poll_batch(
        self, task_type: str, token: str, count: int, *, domain: str | None = None, wait_ms: int = 0
    ) -> list[Delivery]: ...
    def find_waiting(
        self, task_types: Sequence[str], *, domain: str | None = None
    ) -> list[str]: ...
    def read(self, task_id: str) -> AttemptSnapshot: ...
    def has_ended_before(self, workflow_instance_id: str) -> bool: ...
    def renew(self, claim: Claim) -> None: ...
    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None: ...


class ConductorUnderTest(Protocol):
    """A task type of its own, workflows of one task, and an operator."""

    task_type: str

    @property
    def attempts(self) -> Attempts: ...
    def start(
        self, *, retries: int = 3, response_timeout: int = 60, domain: str | None = None
    ) -> str: ...
    def retry(self, workflow_id: str) -> None: ...
    def rerun(self, workflow_id: str, task_id: str) -> None: ...
    def restart(self, workflow_id: str) -> None: ...
    def requeue(self) -> None: ...
    def hand_back(self, claim: Claim) -> None: ...
    def terminate(self, workflow_id: str) -> None: ...
    def let_lease_expire(self, workflow_id: str, seconds: int) -> None: ...
    def status(self, workflow_id: str) -> str: ...


class FakeConductor:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.attempts = InMemoryConductor(self.clock)
        self.task_type = "contract"

    def start(
        self, *, retries: int = 3, response_timeout: int = 60, domain: str | None = None
    ) -> str:
        settings = TaskSettings(
            self.task_type, retry_count=retries, response_timeout_seconds=response_timeout
        )
        return self.attempts.start(settings, PAYLOAD, domain=domain)

    def retry(self, workflow_id: str) -> None:
        self.attempts.retry(workflow_id)

    def rerun(self, workflow_id: str, task_id: str) -> None:
        self.attempts.rerun(workflow_id, task_id)

    def restart(self, workflow_id: str) -> None:
        self.attempts.restart(workflow_id)

    def requeue(self) -> None:
        self.attempts.requeue(self.task_type)

    def hand_back(self, claim: Claim) -> None:
        self.attempts.hand_back(claim)

    def terminate(self, workflow_id: str) -> None:
        self.attempts.terminate(workflow_id)

    def let_lease_expire(self, workflow_id: str, seconds: int) -> None:
        self.clock.advance(seconds + 0.5)
        self.attempts.decide(workflow_id)

    def status(self, workflow_id: str) -> str:
        return self.attempts.workflow(workflow_id).status


class RealConductor:
    def __init__(self, server_url: str) -> None:
        connection = ConductorConnection(server_url)
        self.attempts = ConductorAttempts(connection)
        self.task_type = f"contract-{uuid.uuid4().hex[:12]}"
        self._api = connection.api
        self._started: list[str] = []

    def close(self) -> None:
        """Leave no workflow behind that a sweeper would have to look at."""
        for workflow_id in self._started:
            if self.status(workflow_id) == "RUNNING":
                self.terminate(workflow_id)
        self.attempts.close()

    def start(
        self, *, retries: int = 3, response_timeout: int = 60, domain: str | None = None
    ) -> str:
        task = workflows.taskdef(
            self.task_type, retryCount=retries, responseTimeoutSeconds=response_timeout
        )
        inputs = {"params": "${workflow.input.params}"}
        step = workflows.simple_task(self.task_type, inputs, taskdef=task)
        request = workflows.start_request(
            f"{self.task_type}-workflow", [step], domain=domain, inputs=PAYLOAD
        )
        self._started.append(self._call("POST", "/workflow", json=request).text)
        return self._started[-1]

    def retry(self, workflow_id: str) -> None:
        self._call("POST", f"/workflow/{workflow_id}/retry")

    def rerun(self, workflow_id: str, task_id: str) -> None:
        request = {"reRunFromWorkflowId": workflow_id, "reRunFromTaskId": task_id}
        self._call("POST", f"/workflow/{workflow_id}/rerun", json=request)

    def restart(self, workflow_id: str) -> None:
        self._call("POST", f"/workflow/{workflow_id}/restart")

    def requeue(self) -> None:
        self._call("POST", f"/tasks/queue/requeue/{self.task_type}")

    def hand_back(self, claim: Claim) -> None:
        update = {
            "workflowInstanceId": claim.attempt.workflow_instance_id,
            "taskId": claim.attempt.task_id,
            "workerId": claim.token,
            "status": "IN_PROGRESS",
        }
        self._call("POST", "/tasks", json=update)

    def terminate(self, workflow_id: str) -> None:
        self._call("DELETE", f"/workflow/{workflow_id}")

    def let_lease_expire(self, workflow_id: str, seconds: int) -> None:
        # The lease is the server's own clock; there is nothing to wait for but time.
        time.sleep(seconds + 0.5)
        self._call("PUT", f"/workflow/decide/{workflow_id}")

    def status(self, workflow_id: str) -> str:
        answer = self._call("GET", f"/workflow/{workflow_id}?includeTasks=false")
        return str(answer.json()["status"])

    def _call(self, method: str, path: str, json: Any = None) -> httpx.Response:
        answer = httpx.request(method, self._api + path, json=json, timeout=20)
        if answer.status_code == 409:
            raise ConflictError(answer.text)
        answer.raise_for_status()
        return answer
