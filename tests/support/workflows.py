"""Workflow definitions for tests: requests that start one, with its definition inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def simple_task(
    name: str, inputs: Json, *, reference: str = "step", taskdef: Json | None = None
) -> Json:
    """A task for a worker; with ``taskdef``, nothing needs to be registered before."""
    step: Json = {
        "name": name,
        "taskReferenceName": reference,
        "type": "SIMPLE",
        "inputParameters": inputs,
    }
    return step if taskdef is None else {**step, "taskDefinition": taskdef}


def taskdef(name: str, **changes: Any) -> Json:
    """A task definition with a lease of a minute that is retried at once."""
    return {
        "name": name,
        "ownerEmail": "tests@example.com",
        "retryCount": 2,
        "retryLogic": "FIXED",
        "retryDelaySeconds": 0,
        "timeoutSeconds": 0,
        "responseTimeoutSeconds": 60,
        **changes,
    }


def in_parallel(steps: Sequence[Json]) -> list[Json]:
    """A fork into all steps at once, and the join after them."""
    fork = {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN"}
    join = {"name": "join", "taskReferenceName": "join", "type": "JOIN"}
    return [
        {**fork, "forkTasks": [[step] for step in steps]},
        {**join, "joinOn": [step["taskReferenceName"] for step in steps]},
    ]


def start_request(
    name: str, tasks: Sequence[Json], *, domain: str | None = None, inputs: Json | None = None
) -> Json:
    """The body of ``POST /workflow``; with ``domain``, for the workers of that domain only."""
    definition = {"name": name, "version": 1, "schemaVersion": 2, "tasks": list(tasks)}
    request: Json = {"name": name, "version": 1, "workflowDef": definition, "input": inputs or {}}
    return request if domain is None else {**request, "taskToDomain": {"*": domain}}
