"""The sync plan as tables, made by a join of the download and the data folder on the path.

Where both are small, the plan is made in memory, by the functions of the engine in process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

from perago.names import listing_prefix
from perago.transfer.engine import Engine, FetchedProjection
from perago.transfer.engines import Plan
from perago.transfer.inventory import Projection, RemoteObject, Source
from perago.transfer.on_spark import functions
from perago.transfer.on_spark.jobs import Jobs, table_of
from perago.transfer.on_spark.subtrees import (
    MAX_TASKS,
    problems_in,
    scan_subtrees,
    write_subtrees,
)
from perago.transfer.on_spark.tables import (
    DELETES,
    FETCHED,
    LOCAL,
    RECORD,
    UPLOADS,
    PartitionAssignment,
    PartWriter,
    TransferTable,
    dump_metadata,
    load_metadata,
    values_of,
)
from perago.transfer.partition import Bounds, Grouping
from perago.transfer.paths import refuse_paths
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.scan import (
    COARSE_TICK_NS,
    FINE_TICK_NS,
    FetchedFile,
    level,
    refuse_special,
)
from perago.transfer.subtrees import split

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The number of groups that fill a partition: small groups can be packed well.
GROUPS_PER_PARTITION = 4
# Objects whose files are missing are deleted without hashing, so a partition takes many.
_MISSING_PER_PARTITION = 10_000
# A task scans so many files in about as much time as it takes to begin.
_FOUND_PER_TASK = 10_000

_BEFORE = [f"before_{name}" for name in FETCHED.names]


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """The uploads and deletes of staging, as tables."""

    uploads: TransferTable
    deletes: TransferTable
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.uploads.parts or self.deletes.parts)

    def summary(self) -> dict[str, int]:
        uploads, deletes = self.uploads.total(), self.deletes.total()
        return {
            "uploads": uploads.objects,
            "upload_bytes": uploads.size,
            "deletes": deletes.objects,
            "unchanged": self.unchanged,
        }

    def collect(self) -> SyncPlan:
        uploads = sorted(map(functions.upload_of, self.uploads.rows()), key=lambda one: one.path)
        deletes = sorted(row["key"] for row in self.deletes.rows())
        return SyncPlan(tuple(uploads), tuple(deletes), self.unchanged)


@dataclass(frozen=True, slots=True)
class SparkFetched:
    """A downloaded projection as tables: files with their records and hashes, and markers."""

    jobs: Jobs
    # Provides the context of tasks, with a folder for its file.
    task_context: Callable[[Path], AbstractContextManager[functions.TransferContext]]
    data: Path
    source: Source
    bounds: Bounds
    min_subtrees: int
    files: TransferTable
    markers: TransferTable
    in_process: Engine
    compared_here: Bounds

    def counts(self) -> dict[str, int]:
        total = self.files.total()
        return {"objects": total.objects, "bytes": total.size}

    def changes(self, body_started_ns: int) -> Plan:
        fetched = self.files.total() + self.markers.total()
        if fetched.objects <= self.compared_here.objects:
            here = self._in_memory().changes_within(self.compared_here, body_started_ns)
            # None, and not a plan without changes, which is false.
            if here is not None:
                return here
        return self._changes_on_spark(body_started_ns)

    def _in_memory(self) -> FetchedProjection:
        """Read the tables: no job is needed for that."""
        projection, files = Projection({}, {}), dict[str, FetchedFile]()
        for row in self.files.rows():
            path = row["path"]
            kept = row["content_type"], load_metadata(row["metadata"])
            projection.files[path] = RemoteObject(row["key"], row["size"], *kept)
            files[path] = FetchedFile(functions.record_of(row), row["digest"], row["is_hashed"])
        for row in self.markers.rows():
            projection.markers[row["path"].removesuffix("/")] = RemoteObject(row["key"], 0)
        return FetchedProjection(self.in_process, self.source, projection, files, self.data, {})

    def _changes_on_spark(self, body_started_ns: int) -> SparkPlan:
        # A unique name: a plan may be made more than once.
        changes = self.data.with_name(f"{self.data.name}.changes-{uuid.uuid4().hex}")
        changes.mkdir(mode=0o700)
        local = self._scan(changes)
        assignment = local.assign(self.bounds)
        missing = self.files.total().objects // _MISSING_PER_PARTITION + 1
        partitions = max(missing, assignment.partitions)
        joined = self._joined(local, assignment, partitions)
        suspects = joined.where(may_have_changed(body_started_ns))
        start = listing_prefix(self.source.prefix)
        with (
            self.task_context(changes) as context,
            self.jobs.repacked(suspects, self.bounds) as (packed, partitions),
        ):
            task = functions.task(functions.compare, context, changes, start)
            results = self.jobs.run("diff", packed, partitions, task) if partitions else {}
        uploads = table_of(results, changes / "uploads", UPLOADS)
        deletes = table_of(results, changes / "deletes", DELETES)
        unchanged = local.total().objects - uploads.total().objects
        return SparkPlan(uploads, deletes, unchanged)

    def _scan(self, changes: Path) -> TransferTable:
        """Scan the data folder in tasks and check every name; return the table of what is there."""
        subtrees = split(partial(level, self.data), self.min_subtrees)
        groups = self.bounds.part(GROUPS_PER_PARTITION)
        task = functions.task(scan_subtrees, self.data, self.source.prefix, changes, groups)
        tasks = min(MAX_TASKS, self.files.total().objects // _FOUND_PER_TASK + 2)
        written = write_subtrees(subtrees, changes / "subtrees", tasks)
        results = self.jobs.inspect("diff", "scan", written, task)
        refuse_special(problems_in(changes / "special", results))
        refuse_paths(problems_in(changes / "bad", results))
        return table_of(results, changes / "local", LOCAL)

    def _joined(
        self, local: TransferTable, assignment: PartitionAssignment, partitions: int
    ) -> DataFrame:
        """Join download and data folder by path; a missing file gets a partition by its hash."""
        from pyspark.sql import functions as sql

        before = self.jobs.rows(self.files).unionAll(self.jobs.rows(self.markers))
        before = before.toDF(*_BEFORE)
        now = self.jobs.rows(local, assignment)
        joined = before.join(now, before["before_path"] == now["path"], "full_outer")
        by_hash = sql.pmod(sql.hash("before_path"), sql.lit(partitions))
        return joined.withColumn("partition", sql.coalesce("partition", by_hash))


def may_have_changed(body_started_ns: int) -> Column:
    """Whether the records of a joined row do not prove that nothing changed.

    The same as ``is_proven_unchanged``, computed by Spark: millions of rows never reach Python.
    """
    from pyspark.sql import functions as sql

    path, times = sql.col("path"), ("ctime_ns", "mtime_ns")
    is_same = reduce(and_, (sql.col(f"before_{name}") == sql.col(name) for name in RECORD))
    is_coarse = sql.col("ctime_ns") % 1_000_000_000 == 0
    tick = sql.when(is_coarse, COARSE_TICK_NS).otherwise(FINE_TICK_NS)
    is_old = sql.greatest(*times) + tick < body_started_ns
    return (
        sql.when(path.isNull(), True)
        # Folders and their markers stay as they are; one without a marker is not published.
        .when(path.endswith("/"), False)
        .when(sql.isnull("before_path"), True)
        .otherwise(~(is_same & is_old))
    )


def write_plan(plan: Plan, tables: Path, bounds: Bounds) -> SparkPlan:
    """Write a plan that was made in this process to tables, the uploads of a partition to a part.

    So each task reads what it uploads by itself, and no other task has to read it before.
    """
    collected, grouping = plan.collect(), Grouping(bounds)
    partitions: dict[int, list[Upload]] = {}
    for upload in collected.uploads:
        partitions.setdefault(grouping.add(upload.size), []).append(upload)
    for number, group in partitions.items():
        with PartWriter(tables / "uploads", number, UPLOADS) as part:
            for upload in group:
                kept = upload.content_type, dump_metadata(upload.metadata)
                part.add(upload.path, upload.key, *kept, *values_of(upload.record), 0)
    parts = {number: [size] for number, size in enumerate(grouping.sizes)}
    uploads = TransferTable(tables / "uploads", UPLOADS, parts)
    with PartWriter(tables / "deletes", 0, DELETES, bounds) as deletes:
        for key in collected.deletes:
            deletes.add(key, deletes.group(0))
    return SparkPlan(uploads, deletes.as_table(), collected.unchanged)
