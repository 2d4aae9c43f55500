"""``perago budget``, as a user runs it, against a worker's real metrics port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.observability.health import HealthServer
from perago.observability.metrics import WorkerMetrics
from perago.protocol.events import PhaseEvent
from perago.settings import Address
from support.command_line import Ended, run_perago

MODULE = """
from pathlib import Path
from pydantic import BaseModel
from perago import TaskControls, TimeoutPolicy, WorkspaceSpec, task

class P(BaseModel): ...
class R(BaseModel): ...

short = TaskControls(timeout=TimeoutPolicy(response_seconds=20))

@task(name="clean", owner_email="a@b.c", controls=short)
def clean(workspace: Path, params: P) -> R: ...

@task(name="new", owner_email="a@b.c")
def new(workspace: Path, params: P) -> R: ...

@task(name="look", owner_email="a@b.c", workspace=WorkspaceSpec(read_only=True))
def look(workspace: Path, params: P) -> R: ...
"""


@pytest.fixture
def address() -> Iterator[Address]:
    metrics = WorkerMetrics(["clean", "new"])
    for task, count in (("clean", 40), ("new", 3)):
        for _ in range(count):
            event = PhaseEvent("phase_ended", "publish", 0.12, {"how": "merged"})
            metrics.observe(task, event)
    with HealthServer(Address("127.0.0.1", 0), metrics, lambda: True) as server:
        assert server.address is not None
        yield server.address


def perago(folder: Path, *arguments: str, **variables: str) -> Ended:
    (folder / "my_tasks.py").write_text(MODULE)
    return run_perago("budget", *arguments, folder=folder, extra={"HOME": str(folder), **variables})


def test_a_task_with_enough_publications_gets_python_to_paste(
    tmp_path: Path, address: Address
) -> None:
    done = perago(tmp_path, "my_tasks:clean", PERAGO_METRICS_ADDRESS=str(address))
    assert done.code == 0, done.err
    assert done.out == (
        "# clean: from 40 publications\n"
        "publish_budget=PublishBudget(\n"
        "    observed_merge_p99_seconds=0.15,\n"
        "    safety_margin_seconds=1.0,\n"
        "    lakefs_merge_timeout_seconds=5.0,\n"
        "    conductor_completion_timeout_seconds=30.0,\n"
        "    heartbeat_interval_seconds=6.7,\n"
        "    worker_shutdown_grace_seconds=35.0,\n"
        "),\n"
    )
    assert "response_seconds is 20, shorter than this budget's 41.7 s" in done.err


def test_a_task_with_too_few_publications_is_refused_with_their_number(
    tmp_path: Path, address: Address
) -> None:
    done = perago(tmp_path, "my_tasks:new", "--metrics-url", f"http://{address}/metrics")
    assert done.code == 1
    assert done.out == ""
    assert done.err == ("new: no proposal: 3 publications were measured; a proposal needs 20\n")


def test_json_has_every_task_of_the_module(tmp_path: Path, address: Address) -> None:
    done = perago(tmp_path, "my_tasks", "--json", "--metrics-url", f"http://{address}/metrics")
    assert done.code == 1
    clean, new, look = json.loads(done.out)["tasks"]
    assert clean["budget"]["lakefs_merge_timeout_seconds"] == 5.0
    assert (new["budget"], new["observations"]) == (None, 3)
    assert (look["publishes"], look["reason"]) == (False, "this task publishes nothing")


def test_a_task_that_publishes_nothing_is_no_failure(tmp_path: Path, address: Address) -> None:
    done = perago(tmp_path, "my_tasks:look", "--metrics-url", f"http://{address}/metrics")
    assert done.code == 0
    assert "publishes nothing" in done.err


@pytest.mark.parametrize(
    ("arguments", "variables", "code"),
    [
        (("my_tasks",), {"PERAGO_METRICS_ADDRESS": "off"}, 2),
        (("my_tasks",), {"PERAGO_METRICS_ADDRESS": "127.0.0.1:0"}, 2),
        (("my_tasks", "--metrics-url", "nonsense"), {}, 2),
        (("no_such_module",), {}, 2),
        (("my_tasks", "--metrics-url", "http://127.0.0.1:1/metrics"), {}, 3),
    ],
)
def test_what_cannot_be_done_says_why_and_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], code: int
) -> None:
    done = perago(tmp_path, *arguments, **variables)
    assert (done.code, done.out) == (code, "")
    assert "Try: " in done.err
    assert "Traceback" not in done.err
