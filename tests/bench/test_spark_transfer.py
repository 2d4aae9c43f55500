"""The engine on Spark against the one in this process, in one run: moving and planning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import lakefs_sdk
import pytest

from perago.protocol.workspace import StagingBranch
from perago.transfer.engines import TransferEngine
from perago.transfer.inventory import Projection
from perago.transfer.on_spark.engine import COMPARED_HERE
from perago.transfer.partition import Bounds
from perago.transfer.plan import build_sync_plan
from perago.transfer.removal import remove_tree
from perago.transfer.scan import scan
from support import madeup
from support.bench.movers import fill
from support.bench.results import Book
from support.bench.rounds import hold, seconds_of
from support.bench.table import OURS
from support.engines import Engines
from support.lake_repository import LakeRepository
from support.planned import arrange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(3600)]

OBJECTS, SIZE = 20_000, 1024
PLANNED = int(os.environ.get("PERAGO_BENCH_PLANNED", "1000000"))
HERE, THERE = f"{OURS}, in process", f"{OURS}, on Spark"


@pytest.mark.bench("spark-transfer")
def test_moving_20000_objects_of_1_kb(
    lake: LakeRepository, spark_session: SparkSession, rounds: int, book: Book, tmp_path: Path
) -> None:
    engines = Engines(lake, spark_session, Bounds(), compared_here=COMPARED_HERE)
    engines.spark_threads = 16
    files = fill(tmp_path / "files", OBJECTS, SIZE)
    plan = build_sync_plan(
        projection=Projection({}, {}), tree=scan(files), prefix="", is_changed=lambda _: True
    )
    empty = lake.commit()
    # The first job starts Spark's Python workers, which is not what is measured.
    lake.put("one", b"1")
    engines.fetch(engines.spark, lake.commit(), "")

    def moved(engine: TransferEngine) -> dict[str, float]:
        staging = lake.staging(empty)
        up = seconds_of(lambda: engine.stage(plan, staging, files))
        # What the engine on Spark keeps beside an attempt's data, and an attempt has but one stage.
        shutil.rmtree(files.with_name("files.staging"), ignore_errors=True)
        ref, fetched = committed(lake, staging), []
        down = seconds_of(lambda: fetched.append(engines.fetch(engine, ref, "")))
        ((found, data),) = fetched
        assert found.counts()["objects"] == OBJECTS
        hashed = seconds_of(lambda: found.changes(0))
        remove_tree(data)
        return {"up": up, "down": down, "hash": hashed}

    contest = hold(
        rounds, {THERE: lambda _: moved(engines.spark), HERE: lambda _: moved(engines.process)}
    )
    ways = ("up", "down", "hash")
    book.record("spark-transfer", contest, {way: contest.ratio(THERE, HERE, way) for way in ways})


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


@pytest.mark.bench("planning")
def test_planning_a_million_objects(
    spark_remote: str, bench_modules: Path, rounds: int, book: Book, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    arrange(data, PLANNED)
    expected = {
        "uploads": PLANNED // 100,
        "upload_bytes": 0,
        "deletes": PLANNED // 50,
        "unchanged": PLANNED // 100 * 98,
    }

    def planned(way: str) -> dict[str, float]:
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
        seconds, megabytes, summary = json.loads(ran.stdout.splitlines()[-1])
        assert summary == expected
        shutil.rmtree(data.with_name(f"{data.name}.bench"), ignore_errors=True)
        return {"planning": seconds, "MB": megabytes}

    contest = hold(rounds, {THERE: lambda _: planned("spark"), HERE: lambda _: planned("here")})
    remove_tree(data)
    figures = {
        "planning": contest.ratio(THERE, HERE, "planning"),
        "worker memory": contest.middle("MB", THERE),
    }
    book.record("planning", contest, figures)
