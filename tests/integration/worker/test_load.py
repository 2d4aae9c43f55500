"""Many small tasks: none lost, none run twice."""

from __future__ import annotations

import os

import pytest

from support.workers import WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

# `make load` asks for more.
MANY = int(os.environ.get("PERAGO_LOAD_TASKS", "2000"))
BATCH = 20


@pytest.mark.parametrize("tasks", [60, pytest.param(MANY, marks=pytest.mark.slow)])
def test_many_tasks_on_four_executors_run_once_each(site: WorkerSite, tasks: int) -> None:
    worker = site.start(slots=4, PERAGO_LOG_LEVEL="info")
    # Conductor was seen to take 8 s for a post on a busy machine, and a lease that ends is a retry.
    workflows = [
        site.fork(range(first, first + BATCH), "w_many") for first in range(0, tasks, BATCH)
    ]
    for workflow in workflows:
        site.await_end(workflow, 1500)
    # First of all, since it has the reason.
    ends = [site.end_of(workflow) for workflow in workflows]
    assert [end for end in ends if end != ("COMPLETED", None)] == []
    found = [task for workflow in workflows for task in site.world.tasks(workflow)]
    plain = [task for task in found if task["taskDefName"] == "w_many"]
    assert len(plain) == tasks
    assert {task["status"] for task in plain} == {"COMPLETED"}
    assert {task["retryCount"] for task in plain} == {0}
    notes = sorted(int(task["outputData"]["result"]["note"]) for task in plain)
    assert notes == list(range(tasks))
    assert site.runs() == tasks
    assert worker.stop() == 0
    site.assert_nothing_left()
