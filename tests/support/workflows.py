"""Workflow definitions for tests: their steps, and requests that start one with them inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def step(reference: str, kind: str = "SIMPLE", *, name: str | None = None, **more: Any) -> Json:
    """A step of any kind, with just these fields; its name is its reference unless given."""
    return {"name": name or reference, "taskReferenceName": reference, "type": kind, **more}


def simple_task(
    name: str, inputs: Json, *, reference: str = "step", taskdef: Json | None = None
) -> Json:
    """A task for a worker; with ``taskdef``, nothing needs to be registered before."""
    made = step(reference, name=name, inputParameters=inputs)
    return made if taskdef is None else {**made, "taskDefinition": taskdef}


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


def fork(*branches: Sequence[Json], reference: str = "fork") -> Json:
    """A fork into branches of one or more steps each."""
    return step(reference, "FORK_JOIN", name="fork", forkTasks=[list(each) for each in branches])


def join(*references: str) -> Json:
    """The join that waits for these steps."""
    return step("join", "JOIN", joinOn=list(references))


def in_parallel(steps: Sequence[Json]) -> list[Json]:
    """A fork into all steps at once, and the join after them."""
    references = (each["taskReferenceName"] for each in steps)
    return [fork(*([each] for each in steps)), join(*references)]


def switch(
    cases: dict[str, list[Json]], default: Sequence[Json] = (), *, reference: str = "switch"
) -> Json:
    """A choice between cases of one or more steps each."""
    return step(reference, "SWITCH", name="switch", decisionCases=cases, defaultCase=list(default))


def loop(*steps: Json, reference: str = "loop") -> Json:
    """A loop over these steps."""
    return step(reference, "DO_WHILE", name="loop", loopOver=list(steps))


def terminate() -> Json:
    """The step that ends its workflow."""
    return step("end", "TERMINATE")


def start_request(
    name: str, tasks: Sequence[Json], *, domain: str | None = None, inputs: Json | None = None
) -> Json:
    """The body of ``POST /workflow``; with ``domain``, for the workers of that domain only."""
    definition = {"name": name, "version": 1, "schemaVersion": 2, "tasks": list(tasks)}
    request: Json = {"name": name, "version": 1, "workflowDef": definition, "input": inputs or {}}
    return request if domain is None else {**request, "taskToDomain": {"*": domain}}
