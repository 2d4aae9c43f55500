"""Spark tasks in real workers: an example from start to end, and an executor that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark_world import EVENTS, RealSparkWorld
from support.waiting import until
from support.workers import Worker, WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[3] / "examples"
ORDERS = [
    {"id": 1, "shop": "north", "day": "2026-01-01", "amount": 10.0},
    {"id": 2, "shop": "north", "day": "2026-01-01", "amount": 5.0},
    {"id": 3, "shop": "south", "day": "2026-01-01", "amount": 2.5},
    {"id": 4, "shop": "south", "day": "2026-01-02", "amount": 0.5},
]


@pytest.mark.slow
def test_the_example_runs_in_a_worker(site: WorkerSite, world: RealSparkWorld) -> None:
    site.world, site.home, site.targets = world, EXAMPLES, ("daily_revenue",)
    world.put_table("main", "sales/orders/part-0.parquet", ORDERS)
    world.ref = world.commit("main", {})
    worker = site.start(SPARK_REMOTE=world.remote)
    [task] = site.finish(site.workflow("daily_revenue", smallest=1.0), 180)
    assert task["status"] == "COMPLETED", task["reasonForIncompletion"]
    assert task["outputData"]["result"] == {"rows": 2, "revenue": 17.5}
    ref = task["outputData"]["workspace"]["ref"]
    assert world.history()[:2] == [ref, world.ref]
    assert world.rows("sales/revenue", ref) == [
        {"day": "2026-01-01", "shop": "north", "revenue": 15.0},
        {"day": "2026-01-01", "shop": "south", "revenue": 2.5},
    ]
    assert worker.stop() == 0
    world.assert_tidy()


def interrupted(worker: Worker) -> list[int]:
    """How many operations each interrupt of the worker ended on Spark."""
    lines = [line for line in worker.lines() if line.get("action") == "spark_interrupted"]
    return [line["operations"] for line in lines]


@pytest.mark.only_proof("a retry publishes alone after a worker lost its executor in a Spark job")
def test_a_killed_executor_s_work_on_spark_ends_and_the_retry_publishes_its_own_alone(
    site: WorkerSite, world: RealSparkWorld
) -> None:
    site.world, site.targets = world, ("spark_bodies",)
    worker = site.start(SPARK_REMOTE=world.remote)
    tasks = site.finish(site.workflow("s_copy", do="die", signs=str(site.signs)), 240)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    assert interrupted(worker) == [1]
    assert tasks[1]["outputData"]["result"] == {"rows": len(EVENTS)}
    assert world.rows("data/copy") == EVENTS
    assert not [path for path in world.paths() if "slow" in path]
    assert worker.stop() == 0
    world.assert_tidy()


@pytest.mark.slow
def test_a_deadline_and_a_terminated_workflow_end_an_attempt_s_work_on_spark(
    site: WorkerSite, world: RealSparkWorld
) -> None:
    site.world, site.targets = world, ("spark_bodies",)
    worker = site.start(SPARK_REMOTE=world.remote)
    late = site.finish(site.workflow("s_deadline", signs=str(site.signs)), 240)
    assert [task["status"] for task in late] == ["FAILED", "COMPLETED"]
    assert late[0]["reasonForIncompletion"].startswith("BodyTimeoutError")
    assert late[1]["outputData"]["workspace"]["ref"] == world.ref
    assert interrupted(worker) == [1]

    (site.signs / "begun").unlink()
    cancelled = site.workflow("s_copy", do="wait", signs=str(site.signs))
    site.await_body()
    world.operate("DELETE", f"/workflow/{cancelled}")
    until(lambda: worker.count("attempt_stale"), "the worker to notice", 60)
    assert interrupted(worker) == [1, 1]
    world.assert_at(world.ref)
    assert worker.stop() == 0
    world.assert_tidy()
