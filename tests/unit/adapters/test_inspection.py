"""What is read of workflows, queues, repositories and branches for people to look at."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from perago.conductor.inspection import ConductorInspection
from perago.errors import BackendUnavailableError, NotFoundError
from perago.lakefs.inspection import LakeFSInspection
from support.adapter_calls import ID, conductor, lakefs
from support.garbage_server import GarbageServer, answer

NOTHING = answer(
    "404 Not Found", b'{"status": 404, "message": "no such thing", "retryable": false}'
)


def as_answer(value: Any) -> bytes:
    return answer("200 OK", json.dumps(value).encode())


def serving(good: dict[str, Any]) -> GarbageServer:
    """A server that knows these requests, by their first lines."""
    answers = {f"GET {path}": as_answer(value) for path, value in good.items()}
    return GarbageServer(lambda: iter([NOTHING]), answers)


def page(*results: dict[str, str]) -> dict[str, Any]:
    return {"results": list(results), "pagination": {"has_more": True, "next_offset": "x"}}


def branch(name: str) -> dict[str, str]:
    return {"id": name, "commit_id": ID}


def test_staging_branches_are_passed_over_with_one_more_request() -> None:
    path = "/api/v1/repositories/repo/branches?amount=3&after="
    good = {
        f"{path} ": page(branch("dev"), branch("perago-staging-a"), branch("perago-staging-b")),
        f"{path}perago-staging-~ ": page(branch("v1"), branch("v2"), branch("v3")),
    }
    with serving(good) as server, closing(LakeFSInspection(lakefs(server.url))) as listing:
        assert [head.name for head in listing.branches("repo", 3)] == ["dev", "v1", "v2"]


def test_branches_before_the_staging_branches_are_one_request() -> None:
    path = "/api/v1/repositories/repo/branches?amount=2&after="
    good = {f"{path} ": page(branch("dev"), branch("main"))}
    with serving(good) as server, closing(LakeFSInspection(lakefs(server.url))) as listing:
        assert [head.name for head in listing.branches("repo", 2)] == ["dev", "main"]


def test_repositories_come_with_their_default_branches() -> None:
    good = {
        "/api/v1/repositories?amount=1000 ": page({"id": "songs", "default_branch": "trunk"}),
    }
    with serving(good) as server, closing(LakeFSInspection(lakefs(server.url))) as listing:
        assert listing.repositories(5000) == [("songs", "trunk")]


TASK = {
    "taskId": "t1",
    "workflowInstanceId": "w1",
    "status": "IN_PROGRESS",
    "referenceTaskName": "clean",
    "taskType": "clean_events",
    "startTime": 1_000_000,
    "updateTime": 2_000_000,
    "responseTimeoutSeconds": 60,
    "workflowTask": {"name": "clean_events", "type": "SIMPLE"},
}
WORKFLOW = {
    "workflowId": "w1",
    "workflowName": "nightly",
    "status": "RUNNING",
    "createTime": 1_000_000,
    "tasks": [TASK, {**TASK, "taskId": "t2", "taskType": "JOIN", "workflowTask": None}],
    "workflowDefinition": {"tasks": [{"taskReferenceName": "clean"}]},
}


def test_a_workflow_comes_with_its_attempts_leases_and_definition() -> None:
    good = {"/api/workflow/w1?includeTasks=true ": WORKFLOW}
    with serving(good) as server, closing(ConductorInspection(conductor(server.url))) as reader:
        found = reader.workflow("w1")
    first, second = found.tasks
    assert (found.name, found.status, found.ended) == ("nightly", "RUNNING", None)
    assert found.definition == {"tasks": [{"taskReferenceName": "clean"}]}
    assert (first.kind, second.kind) == ("SIMPLE", "JOIN")
    assert first.lease_ends is not None
    assert first.lease_ends.timestamp() == 2060


def test_another_workflow_than_was_asked_for_is_no_answer() -> None:
    good = {"/api/workflow/w2?includeTasks=true ": WORKFLOW}
    reading = ConductorInspection
    with serving(good) as server, closing(reading(conductor(server.url), tries=1)) as reader:
        with pytest.raises(BackendUnavailableError, match="another workflow"):
            reader.workflow("w2")
        with pytest.raises(NotFoundError):
            reader.workflow("w3")


def test_a_search_finds_the_workflows_that_were_started_last() -> None:
    results = [{"workflowId": f"w{n}", "status": "RUNNING", "updateTime": "now"} for n in range(3)]
    good = {
        "/api/workflow/search?start=0&size=2&sort=startTime%3ADESC&query=": {"results": results},
        "/api/workflow/search?start=0&size=2&sort=startTime%3ADESC ": {"results": results[:1]},
    }
    with serving(good) as server, closing(ConductorInspection(conductor(server.url))) as reader:
        # Never more than was asked for, whatever the server sends.
        assert [it.workflow_id for it in reader.find_workflows(2, running=True)] == ["w0", "w1"]
        assert [it.workflow_id for it in reader.find_workflows(2)] == ["w0"]


def test_queues_are_those_that_hold_tasks_or_are_polled() -> None:
    polls = [
        {"queueName": "clean", "workerId": "perago-1", "lastPollTime": 1_000_000},
        {"queueName": "clean", "domain": "eu", "lastPollTime": 2_000_000},
    ]
    sizes = {"clean": 2, "old": 0, "waiting": 5, "_deciderQueue": 7}
    good = {"/api/tasks/queue/polldata/all ": polls, "/api/tasks/queue/all ": sizes}
    with serving(good) as server, closing(ConductorInspection(conductor(server.url))) as reader:
        found = reader.queues()
    assert [(it.name, it.waiting, it.last_poll is None) for it in found] == [
        ("clean", 2, False),
        ("eu:clean", 0, False),
        ("waiting", 5, True),
    ]
