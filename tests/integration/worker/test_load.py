"""Many small tasks: none lost, none run twice."""

from __future__ import annotations

import os

import pytest

from integration.worker.harness import WorkerSite, until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

# `make soak` asks for more.
TASKS = int(os.environ.get("PERAGO_LOAD_TASKS", "2000"))
BATCH = 20


def start_batch(site: WorkerSite, first: int) -> str:
    """A workflow that forks into many workspace-free tasks at once."""
    steps = [
        {
            "name": "w_plain",
            "taskReferenceName": f"t{number}",
            "type": "SIMPLE",
            "inputParameters": {"params": {"text": str(number), "signs": str(site.signs)}},
        }
        for number in range(first, first + BATCH)
    ]
    join = {
        "name": "join",
        "taskReferenceName": "join",
        "type": "JOIN",
        "joinOn": [step["taskReferenceName"] for step in steps],
    }
    fork = {
        "name": "fork",
        "taskReferenceName": "fork",
        "type": "FORK_JOIN",
        "forkTasks": [[step] for step in steps],
    }
    name = f"load_{site.domain}"
    definition = {"name": name, "version": 1, "schemaVersion": 2, "tasks": [fork, join]}
    request = {
        "name": name,
        "version": 1,
        "workflowDef": definition,
        "taskToDomain": {"*": site.domain},
    }
    return site.servers.http.post("/workflow", json=request).raise_for_status().text


def await_end(site: WorkerSite, workflow: str) -> None:
    until(lambda: site.status(workflow) != "RUNNING", f"the end of {workflow}", seconds=1500)


def test_thousands_of_tasks_on_four_executors_run_once_each(site: WorkerSite) -> None:
    worker = site.start(slots=4, PERAGO_LOG_LEVEL="info")
    workflows = [start_batch(site, first) for first in range(0, TASKS, BATCH)]
    for workflow in workflows:
        await_end(site, workflow)
    tasks = [task for workflow in workflows for task in site.world.tasks(workflow)]
    plain = [task for task in tasks if task["taskDefName"] == "w_plain"]
    assert len(plain) == TASKS
    assert {task["status"] for task in plain} == {"COMPLETED"}
    assert {task["retryCount"] for task in plain} == {0}
    notes = sorted(int(task["outputData"]["result"]["note"]) for task in plain)
    assert notes == list(range(TASKS))
    assert site.runs() == TASKS
    assert worker.stop() == 0
    site.assert_nothing_left()
