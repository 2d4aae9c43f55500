"""Run by the bench in a process of its own: plan a simulated workspace, tell time and peak memory.

Nothing is on disk or in LakeFS: the listing, what was fetched and the scan are made up, so that
only planning is measured. One path in a hundred is gone, and one is new.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from integration.transfer.measured import peak_kilobytes
from perago.transfer.inventory import RemoteObject, project
from perago.transfer.paths import FileSystem, check_projection
from perago.transfer.plan import SyncPlan, build_sync_plan, suspects
from perago.transfer.port import Plan
from perago.transfer.scan import FetchedFile, LocalTree, StatRecord

BODY_STARTED_NS = 2_000_000_000_000_000_000


def listing(count: int) -> Iterator[RemoteObject]:
    for number in range(count):
        yield RemoteObject(path_of(number), number % 5000, f"{number:032x}", "text/csv")


def path_of(number: int) -> str:
    return f"events/day={number // 10_000:04}/part-{number:08}.csv"


def record_of(number: int) -> StatRecord:
    return StatRecord(number % 5000, 1_700_000_000_000_000_001, 1_700_000_000_000_000_001, number)


def scanned(count: int) -> Iterator[tuple[str, StatRecord | None]]:
    for number in range(count):
        if number % 100 == 0:
            yield f"new/{number:08}", record_of(number)
        elif number % 100 != 1:
            yield path_of(number), record_of(number)


def plan_here(count: int, data: Path) -> SyncPlan:
    projection = project(listing(count), "")
    check_projection(projection, data, FileSystem())
    fetched = {path_of(n): FetchedFile(record_of(n), f"{n:032x}") for n in range(count)}
    tree = LocalTree({path: rec for path, rec in scanned(count) if rec}, frozenset())
    assert suspects(tree, fetched, BODY_STARTED_NS) == []
    return build_sync_plan(projection=projection, tree=tree, prefix="", is_changed=lambda _: False)


def plan_on_spark(count: int, data: Path, order: dict[str, str]) -> Plan:
    from pyspark.sql import SparkSession

    from perago.spark import plan as planning
    from perago.spark.engine import SparkEngine
    from perago.spark.jobs import Jobs
    from perago.spark.tables import FETCHED, PartWriter, Table
    from perago.transfer.port import Source

    session = SparkSession.builder.remote(order["remote"]).create()
    try:
        session.addArtifacts(order["modules"], pyfile=True)
        engine = SparkEngine(None, None, lambda: session, lambda _: None)  # type: ignore[arg-type]
        tables = data.with_name("tables")
        tables.mkdir()
        listed, markers = engine._write_listing(Source("", "", ""), listing(count), data, tables)
        fetched = PartWriter(tables / "fetched", FETCHED)
        for n in range(count):
            rec = record_of(n)
            times = rec.mtime_ns, rec.ctime_ns, rec.inode
            path = path_of(n)
            fetched.add(path, path, "text/csv", "", f"{n:032x}", rec.size, *times)
        files = fetched.table()
        known = planning.SparkFetched(
            Jobs(lambda: session, lambda _: None),
            data,
            "",
            engine.bounds,
            Table(files.folder, files.schema, files.parts, listed.groups),
            markers,
        )
        setattr(planning, "scanned", lambda _: scanned(count))  # noqa: B010  the file system, made up
        return known.changes(BODY_STARTED_NS)
    finally:
        session.stop()


def main() -> None:
    order = json.load(sys.stdin)
    count = int(order["count"])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        started = time.perf_counter()
        way = order["way"]
        plan = plan_here(count, data) if way == "here" else plan_on_spark(count, data, order)
        seconds = time.perf_counter() - started
        print(json.dumps([seconds, peak_kilobytes() // 1024, plan.summary()]))


if __name__ == "__main__":
    main()
