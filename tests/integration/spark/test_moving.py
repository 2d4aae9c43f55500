"""Workers whose Spark moves the large workspaces of file tasks: here, and on a cluster."""

from __future__ import annotations

import pytest

from support.cluster import StandaloneCluster
from support.workers import Worker, WorkerSite

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(400)]

TEXTS = {f"data/many/{number:03}.txt": f"text {number}" for number in range(40)}
LARGE = {"PERAGO_SPARK_MIN_OBJECTS": "20"}
SHARED = {"PERAGO_WORKSPACE_ROOT_SHARED": "true"}


@pytest.fixture
def moving_site(site: WorkerSite) -> WorkerSite:
    site.targets = ("spark_bodies",)
    return site


def rewritten() -> dict[str, str]:
    """What ``f_rewrite`` makes of the texts."""
    kept, new = {}, {}
    for number, (path, text) in enumerate(TEXTS.items()):
        new[path.replace("many", "new")] = f"from {text}"
        if number % 3:
            kept[path] = text if number % 2 else "changed"
    return kept | new


def partitions(worker: Worker) -> dict[str, int]:
    """Objects moved by Spark, per phase; what was only listed or scanned is told in other words."""
    moved: dict[str, int] = {}
    for line in worker.lines():
        if line.get("action") == "partition_done" and "what" not in line:
            objects = int(line["objects"]) + int(line.get("deletes", 0))
            moved[line["phase"]] = moved.get(line["phase"], 0) + objects
    return moved


def rewrite(site: WorkerSite, worker: Worker, **params: str) -> list[str]:
    """Run the task on forty texts, look at what it published; its attempts' task logs."""
    world = site.world
    world.ref = world.commit("main", TEXTS)
    untouched = {key: text for key, text in world.contents().items() if key not in TEXTS}
    tasks = site.finish(site.workflow("f_rewrite", **params), 240)
    assert tasks[-1]["status"] == "COMPLETED", tasks[-1]["reasonForIncompletion"]
    assert world.contents() == untouched | rewritten()
    assert world.history()[:2] == [tasks[-1]["outputData"]["workspace"]["ref"], world.ref]
    assert worker.stop() == 0
    world.assert_tidy()
    site.assert_nothing_left()
    found = (site.servers.http.get(f"/tasks/{task['taskId']}/log").json() for task in tasks)
    return ["\n".join(entry["log"] for entry in log) for log in found]


def assert_moved_by_spark(worker: Worker, log: str) -> None:
    """What moves objects ran in partitions, told in both logs; so few are compared here."""
    moved, now = partitions(worker), rewritten()
    assert set(moved) == {"download", "stage"}
    uploads, deletes = set(now.items()) - set(TEXTS.items()), set(TEXTS) - set(now)
    assert moved["stage"] == len(uploads) + len(deletes)
    told = [line for line in log.replace("; ", "\n").splitlines() if "partition=1/" in line]
    assert {line.partition(" ")[0] for line in told} == {"download", "stage"}
    assert all(" s partition=" in line for line in told)
    looks = [line for line in told if " what=" in line]
    assert {line.partition(" ")[0] for line in looks} == {"download"}
    assert all(" found=" in line and " objects=" not in line for line in looks)
    assert all(" objects=" in line for line in told if line not in looks)


@pytest.mark.slow
def test_a_large_workspace_is_moved_by_the_worker_s_own_spark(moving_site: WorkerSite) -> None:
    worker = moving_site.start(LARGE, PERAGO_SPARK_MASTER="local[2]")
    [log] = rewrite(moving_site, worker)
    assert worker.count("spark_started") == 1
    assert_moved_by_spark(worker, log)


@pytest.mark.slow
def test_spark_moves_the_workspace_of_a_retry_after_a_dead_executor(
    moving_site: WorkerSite,
) -> None:
    worker = moving_site.start(LARGE, PERAGO_SPARK_MASTER="local[2]")
    # The first attempt dies with its executor, which had a session for the download.
    dead, log = rewrite(moving_site, worker, do="die", signs=str(moving_site.signs))
    assert worker.count("spark_started") == 1
    assert worker.count("spark_interrupted") == 1
    assert_moved_by_spark(worker, log)
    assert "partition=" in dead


def test_a_small_workspace_needs_no_spark(moving_site: WorkerSite) -> None:
    worker = moving_site.start(PERAGO_SPARK_MASTER="local[2]")
    rewrite(moving_site, worker)
    assert worker.count("spark_started") == 0
    assert partitions(worker) == {}


@pytest.mark.slow
def test_a_cluster_moves_a_workspace_whose_root_is_shared(
    moving_site: WorkerSite, cluster: StandaloneCluster
) -> None:
    worker = moving_site.start(cluster.environment() | LARGE | SHARED)
    [log] = rewrite(moving_site, worker)
    assert_moved_by_spark(worker, log)


@pytest.mark.slow
def test_a_cluster_that_does_not_see_the_root_moves_nothing(
    moving_site: WorkerSite, cluster: StandaloneCluster
) -> None:
    worker = moving_site.start(cluster.environment() | LARGE)
    rewrite(moving_site, worker)
    # For its Spark tasks the worker has tried the cluster before its first poll, and no more.
    assert worker.count("spark_started") == 1
    assert partitions(worker) == {}
