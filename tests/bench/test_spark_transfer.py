"""The engine on Spark against the one in this process, in one run: moving and planning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import lakefs_sdk
import pytest

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import Projection
from perago.transfer.partition import Bounds
from perago.transfer.plan import build_sync_plan
from perago.transfer.removal import remove_tree
from perago.transfer.scan import scan
from support import madeup
from support.engines import Engines
from support.lake_repository import LakeRepository
from support.planned import arrange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    *[pytest.mark.bench, pytest.mark.servers, pytest.mark.spark],
    pytest.mark.timeout(1800),
]

OBJECTS, SIZE = 20_000, 1024
PLANNED = int(os.environ.get("PERAGO_BENCH_PLANNED", "1000000"))
Value = TypeVar("Value")


def timed(times: dict[str, float], name: str, work: Callable[[], Value]) -> Value:
    start = time.perf_counter()
    value = work()
    times[name] = time.perf_counter() - start
    return value


def test_moving_20000_objects_of_1_kb(
    lake: LakeRepository, spark_session: SparkSession, tmp_path: Path
) -> None:
    engines = Engines(lake, spark_session, Bounds())
    engines.spark_threads = 16
    files = tmp_path / "files"
    for number in range(OBJECTS):
        folder = files / f"{number // 500:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}").write_bytes(os.urandom(SIZE))
    plan = build_sync_plan(
        projection=Projection({}, {}), tree=scan(files), prefix="", is_changed=lambda _: True
    )
    empty = lake.commit()
    staging = lake.staging(empty)
    times: dict[str, float] = {}
    # The first job starts Spark's Python workers, which is not what is measured.
    lake.put("one", b"1")
    engines.fetch(engines.spark, lake.commit(), "")
    for name, engine in (("process", engines.process), ("spark", engines.spark)):
        staging = lake.staging(empty)
        timed(times, f"up {name}", partial(engine.stage, plan, staging, files))
    ref = committed(lake, staging)
    for name, engine in (("process", engines.process), ("spark", engines.spark)):
        fetched, _ = timed(times, f"down {name}", partial(engines.fetch, engine, ref, ""))
        assert fetched.counts() == {"objects": OBJECTS, "bytes": OBJECTS * SIZE}
        timed(times, f"hash {name}", partial(fetched.changes, 0))
    print(f"\n{OBJECTS} objects of {SIZE} bytes: seconds")
    for way in ("up", "down", "hash"):
        here, there = times[f"{way} process"], times[f"{way} spark"]
        print(f"  {way:5} process {here:6.1f}  spark {there:6.1f}  ratio {there / here:.2f}")


def committed(lake: LakeRepository, staging: StagingBranch) -> str:
    creation = lakefs_sdk.CommitCreation(message="test")
    return str(lake.client.commits_api.commit(lake.repository, staging.branch, creation).id)


@pytest.fixture
def bench_modules(worker_modules: Path, tmp_path: Path) -> Path:
    """The workers' code, with the store that is made up for them."""
    modules = tmp_path / "modules.zip"
    shutil.copy(worker_modules, modules)
    with zipfile.ZipFile(modules, "a") as bundle:
        bundle.writestr("support/__init__.py", "")
        bundle.write(madeup.__file__, "support/madeup.py")
    return modules


def test_planning_a_million_objects(spark_remote: str, bench_modules: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    arrange(data, PLANNED)
    told = {}
    for way in ("here", "spark"):
        order = {"way": way, "count": PLANNED, "data": str(data), "modules": str(bench_modules)}
        order["remote"] = spark_remote
        ran = subprocess.run(
            [sys.executable, "-m", "support.planned"],
            input=json.dumps(order),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=1200,
            check=True,
        )
        told[way] = json.loads(ran.stdout.splitlines()[-1])
    remove_tree(data)
    assert told["spark"][2] == told["here"][2]
    assert told["here"][2] == {
        "uploads": PLANNED // 100,
        "upload_bytes": 0,
        "deletes": PLANNED // 50,
        "unchanged": PLANNED // 100 * 98,
    }
    print(f"\nplanning {PLANNED} objects, load {os.getloadavg()[0]:.1f}")
    for way, (seconds, megabytes, _) in told.items():
        print(f"  {way:6} {seconds:6.1f} s, peak {megabytes} MB in the worker's process")
