"""Attempts as Conductor knows them. SDK models are mapped here and go no further."""

from __future__ import annotations

from typing import Any

import httpx
from conductor.client.configuration.configuration import Configuration
from conductor.client.configuration.settings.authentication_settings import AuthenticationSettings
from conductor.client.http.api.task_resource_api import TaskResourceApi
from conductor.client.http.api.workflow_resource_api import WorkflowResourceApi
from conductor.client.http.api_client import ApiClient
from conductor.client.http.models.task import Task
from conductor.client.http.models.task_exec_log import TaskExecLog
from conductor.client.http.models.task_result import TaskResult
from conductor.client.http.models.workflow import Workflow

from perago.conductor.errors import translated
from perago.connections import ConductorConnection
from perago.errors import BackendRefusedError, NotFoundError
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, Outcome
from perago.protocol.ports import AttemptSnapshot, Delivery
from perago.retry import TRIES, retrying_times

_LONGEST_POLL_MS = 5000
# Conductor keeps the first ten log entries of an update and drops the rest.
_MAX_LOG_ENTRIES = 10


def connect(connection: ConductorConnection) -> ApiClient:
    """The SDK's client over a connection with our timeouts and no silent retries."""
    credentials = None
    if connection.auth_key and connection.auth_secret:
        credentials = AuthenticationSettings(
            key_id=connection.auth_key, key_secret=connection.auth_secret.get_secret_value()
        )
    configuration = Configuration(
        server_api_url=connection.api, authentication_settings=credentials
    )
    configuration.http_connection = httpx.Client(
        timeout=httpx.Timeout(connection.read_timeout, connect=connection.connect_timeout),
        transport=httpx.HTTPTransport(retries=0),
        follow_redirects=False,
    )
    return ApiClient(configuration)


class ConductorAttempts:
    """Poll, lease and completion; implements the protocol's ``Attempts`` port."""

    def __init__(self, connection: ConductorConnection, *, tries: int = TRIES) -> None:
        """``tries`` is for reads and lease renewals; polls and posts are one request each."""
        client = connect(connection)
        self._api = TaskResourceApi(client)
        self._workflows = WorkflowResourceApi(client)
        self._http: httpx.Client = client.configuration.http_connection
        self._timeout = (connection.connect_timeout, connection.read_timeout)
        self._tries = tries

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._http.close()

    def poll(
        self, task_type: str, token: str, *, domain: str | None = None, wait_ms: int = 0
    ) -> Delivery | None:
        """Ask for one task under a worker id that is used for this poll only."""
        wait_ms = min(wait_ms, _LONGEST_POLL_MS)
        options: dict[str, Any] = {"domain": domain} if domain else {}
        with translated(f"poll for {task_type!r}"):
            tasks: list[Task] = self._api.batch_poll(
                task_type,
                workerid=token,
                count=1,
                timeout=wait_ms,
                _request_timeout=(self._timeout[0], self._timeout[1] + wait_ms / 1000),
                **options,
            )
        return _delivery(tasks[0], token) if tasks else None

    def read(self, task_id: str) -> AttemptSnapshot:
        task = retrying_times(self._tries)(self._get_task, task_id)
        return AttemptSnapshot(
            status=str(task.status),
            workflow_instance_id=task.workflow_instance_id,
            task_id=task.task_id,
            retry_count=task.retry_count or 0,
            worker_id=task.worker_id,
            response_timeout_seconds=float(task.response_timeout_seconds or 0),
            retried_task_id=task.retried_task_id or None,
            reason=task.reason_for_incompletion or None,
        )

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        # Conductor leaves the time of the last end on a workflow that is retried or rerun.
        return bool(retrying_times(self._tries)(self._get_workflow, workflow_instance_id).end_time)

    def assert_answers(self) -> None:
        """Make sure that a Conductor answers here, and not just any web server.

        Where "not found" is acted upon, an address that knows no task at all would be fatal.
        """
        try:
            with translated("read the size of a queue"):
                sizes = self._api.size(task_type=["perago"], _request_timeout=self._timeout)
        except (AttributeError, TypeError, ValueError):  # the SDK could not make sense of a page
            sizes = None
        if not isinstance(sizes, dict):
            raise BackendRefusedError(
                "what answers at CONDUCTOR_SERVER_URL is not a Conductor API",
                hint="Set CONDUCTOR_SERVER_URL to the server's API, ending in /api.",
            )

    def renew(self, claim: Claim) -> None:
        """Extend the lease. Only for a claim that was just read and found ours."""
        result = _result(claim, "IN_PROGRESS")
        result.extend_lease = True
        what = f"extend the lease of task {claim.attempt.task_id}"
        retrying_times(self._tries)(self._update, result, what)

    def complete(self, claim: Claim, outcome: Outcome, logs: list[str]) -> None:
        """Post an outcome. Only for a claim that was just read and found ours."""
        if isinstance(outcome, Completed):
            result = _result(claim, "COMPLETED")
            result.output_data = outcome.output
        else:
            result = _result(claim, outcome.disposition.value)
            result.reason_for_incompletion = outcome.reason
        result.logs = [
            TaskExecLog(log=line, task_id=claim.attempt.task_id) for line in logs[:_MAX_LOG_ENTRIES]
        ]
        self._update(result, f"complete task {claim.attempt.task_id}")

    def log(self, task_id: str, text: str) -> None:
        """Add an entry to a task's log; it changes nothing else of the task."""
        with translated(f"add to the log of task {task_id}"):
            self._api.log(text, task_id, _request_timeout=self._timeout)

    def hand_back(self, claim: Claim) -> None:
        """Hand an attempt back: a plain IN_PROGRESS update puts it into the queue again."""
        self._update(_result(claim, "IN_PROGRESS"), f"hand back task {claim.attempt.task_id}")

    def _get_task(self, task_id: str) -> Task:
        with translated(f"read task {task_id}"):
            task: Task | None = self._api.get_task(task_id, _request_timeout=self._timeout)
        if task is None:
            raise NotFoundError(f"Conductor has no task {task_id}")
        return task

    def _get_workflow(self, workflow_instance_id: str) -> Workflow:
        with translated(f"read workflow {workflow_instance_id}"):
            workflow: Workflow | None = self._workflows.get_execution_status(
                workflow_instance_id, include_tasks=False, _request_timeout=self._timeout
            )
        if workflow is None:
            raise NotFoundError(f"Conductor has no workflow {workflow_instance_id}")
        return workflow

    def _update(self, result: TaskResult, what: str) -> None:
        with translated(what):
            self._api.update_task(result, _request_timeout=self._timeout)


def _result(claim: Claim, status: str) -> TaskResult:
    attempt = claim.attempt
    return TaskResult(
        workflow_instance_id=attempt.workflow_instance_id,
        task_id=attempt.task_id,
        worker_id=claim.token,
        status=status,
    )


def _delivery(task: Task, token: str) -> Delivery:
    attempt = Attempt(
        workflow_instance_id=task.workflow_instance_id,
        task_id=task.task_id,
        retry_count=task.retry_count or 0,
        reference_name=task.reference_task_name,
        seq=task.seq or 0,
        iteration=task.iteration or 0,
        workflow_name=task.workflow_type or "",
        retried_task_id=task.retried_task_id or None,
        scheduled_ms=task.scheduled_time or 0,
    )
    return Delivery(
        claim=Claim(attempt, token),
        task_type=task.task_def_name or task.task_type,
        payload=dict(task.input_data or {}),
        response_timeout_seconds=float(task.response_timeout_seconds or 0),
    )
