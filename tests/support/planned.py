"""Run by the bench in a process of its own: plan a large workspace, tell time and peak memory.

The listing is made up, and so is the download: the files on disk are empty, and what was fetched
is written down from them before the clock runs. One path in a hundred is gone, and one is new.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from perago.transfer.engine import Engine
from perago.transfer.engines import Plan
from perago.transfer.inventory import Source, project
from perago.transfer.paths import FileSystem, check_projection
from perago.transfer.plan import build_sync_plan, suspects
from perago.transfer.scan import FetchedFile, StatRecord, scan
from support.madeup import MadeUp, MadeUpShipment, path_of
from support.measured import peak_kilobytes

# Long after every file was written: its record alone proves it unchanged.
BODY_STARTED_NS = 2_000_000_000_000_000_000
SOURCE = Source("repository", "ref", "")
# As many as a download's task writes down.
_PER_PART = 5000
_NEW = StatRecord(0, 1, 1, 1)


def arrange(data: Path, count: int) -> None:
    """The files of a body that made and removed some."""
    for number in range(count):
        if number % 100 != 1:
            path = f"new/{number:08}" if number % 100 == 0 else path_of(number)
            file = data / path
            if number % 10_000 <= 2:
                file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


def fetched(data: Path, count: int) -> Iterator[tuple[str, StatRecord]]:
    """What the download would have written down of each file."""
    for number in range(count):
        path = path_of(number)
        is_there = number % 100 > 1
        yield path, StatRecord.of((data / path).stat()) if is_there else _NEW


def plan_here(count: int, data: Path) -> Callable[[], Plan]:
    known = {path: FetchedFile(record, "md5") for path, record in fetched(data, count)}

    def plan() -> Plan:
        projection = project(SOURCE.listing(MadeUp(count)), "")  # type: ignore[arg-type]
        check_projection(projection, data, FileSystem())
        tree = scan(data)
        assert suspects(tree, known, BODY_STARTED_NS) == []
        return build_sync_plan(
            projection=projection, tree=tree, prefix="", is_changed=lambda _: False
        )

    return plan


def plan_on_spark(count: int, data: Path, order: dict[str, str]) -> Callable[[], Plan]:
    from pyspark.sql import SparkSession

    from perago.transfer.on_spark.engine import SparkEngine
    from perago.transfer.on_spark.jobs import Jobs
    from perago.transfer.on_spark.plan import SparkFetched
    from perago.transfer.on_spark.tables import FETCHED, PartWriter, TransferTable
    from perago.transfer.partition import TransferSize

    tables = data.with_name(f"{data.name}.bench")
    tables.mkdir()
    parts = {}
    known = fetched(data, count)
    for number, files in enumerate(iter(lambda: list(islice(known, _PER_PART)), [])):
        parts[number] = [TransferSize(len(files))]
        with PartWriter(tables / "fetched", number, FETCHED) as part:
            for path, record in files:
                times = record.mtime_ns, record.ctime_ns, record.inode
                part.add(path, path, "text/csv", "", "md5", True, record.size, *times)

    def plan() -> Plan:
        session = SparkSession.builder.remote(order["remote"]).create()
        try:
            session.addArtifacts(order["modules"], pyfile=True)
            store = MadeUp(count)
            engine = SparkEngine(store, MadeUpShipment(store), lambda: session, lambda _: None)  # type: ignore[arg-type]
            jobs = Jobs(lambda: session, lambda _: None)
            task_context = partial(
                engine._task_context, data=data, repository=SOURCE.repository, ref=SOURCE.ref
            )
            with task_context(tables) as context:
                listed, markers = engine._list(SOURCE, context, tables, jobs)
            assert listed.total().objects == count
            files = TransferTable(tables / "fetched", FETCHED, parts)
            before = SparkFetched(
                jobs=jobs,
                task_context=task_context,
                data=data,
                source=SOURCE,
                bounds=engine.bounds,
                min_subtrees=engine.min_subtrees,
                files=files,
                markers=markers,
                in_process=Engine(engine.store),
                compared_here=engine.compared_here,
            )
            return before.changes(BODY_STARTED_NS)
        finally:
            session.stop()

    return plan


def main() -> None:
    order = json.load(sys.stdin)
    count, data = int(order["count"]), Path(order["data"])
    here = order["way"] == "here"
    plan = plan_here(count, data) if here else plan_on_spark(count, data, order)
    started = time.perf_counter()
    summary = plan().summary()
    seconds = time.perf_counter() - started
    print(json.dumps([seconds, peak_kilobytes() // 1024, summary]))


if __name__ == "__main__":
    main()
