"""The sync plan as tables: from what was fetched and what is there now, by a join on the path."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perago.transfer.engines import Plan
from perago.transfer.inventory import listing_prefix
from perago.transfer.on_spark import functions
from perago.transfer.on_spark.jobs import Jobs, table_of
from perago.transfer.on_spark.subtrees import problems_in, scan_subtrees, write_subtrees
from perago.transfer.on_spark.tables import (
    DELETES,
    FETCHED,
    LOCAL,
    UPLOADS,
    PartitionAssignment,
    PartWriter,
    Table,
    ddl,
    dump_metadata,
)
from perago.transfer.partition import Bounds
from perago.transfer.paths import refuse_paths
from perago.transfer.plan import SyncPlan
from perago.transfer.scan import level, refuse_special
from perago.transfer.subtrees import split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# So many groups of objects fill a partition: small enough to be packed well.
GROUPS_PER_PARTITION = 4
# Objects that are gone need no hashing, only a place to be written down.
_GONE_PER_PARTITION = 10_000

_PARTITION = pa.field("partition", pa.int32())
_BEFORE = pa.schema([pa.field(f"before_{field.name}", field.type) for field in FETCHED])
_JOINED = pa.schema([*_BEFORE, *LOCAL, _PARTITION])


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """What staging has to do, as tables."""

    uploads: Table
    deletes: Table
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
    """What was fetched, as tables: files with their records and hashes, and markers."""

    jobs: Jobs
    data: Path
    prefix: str
    bounds: Bounds
    units: int
    files: Table
    markers: Table

    def counts(self) -> dict[str, int]:
        total = self.files.total()
        return {"objects": total.objects, "bytes": total.size}

    def changes(self, body_started_ns: int) -> SparkPlan:
        # A name of its own: a plan may be made more than once.
        changes = self.data.with_name(f"{self.data.name}.changes-{uuid.uuid4().hex}")
        changes.mkdir(mode=0o700)
        local = self._scan(changes)
        places = local.places(self.bounds)
        gone = self.files.total().objects // _GONE_PER_PARTITION + 1
        partitions = max(gone, places.partitions)
        joined = self._joined(local, places, partitions)
        open_rows = joined.mapInArrow(partial(functions.decide, body_started_ns), ddl(_JOINED))
        start = listing_prefix(self.prefix)
        task = functions.task(functions.compare, self.data, changes, start)
        answers = self.jobs.run("diff", open_rows, partitions, task)
        uploads = table_of(answers, changes / "uploads", UPLOADS)
        deletes = table_of(answers, changes / "deletes", DELETES)
        unchanged = local.total().objects - uploads.total().objects
        return SparkPlan(uploads, deletes, unchanged)

    def _scan(self, changes: Path) -> Table:
        """What is in the data folder, scanned in tasks, after a look at every name."""
        units = split(partial(level, self.data), self.units)
        groups = self.bounds.part(GROUPS_PER_PARTITION)
        task = functions.task(scan_subtrees, self.data, self.prefix, changes, groups)
        written = write_subtrees(units, changes / "units")
        answers = self.jobs.look("diff", "scan", written, task)
        refuse_special(problems_in(changes / "special", answers))
        refuse_paths(problems_in(changes / "bad", answers))
        return table_of(answers, changes / "local", LOCAL)

    def _joined(self, local: Table, places: PartitionAssignment, partitions: int) -> DataFrame:
        """Each path with what it was and what it is; what is gone also gets a partition."""
        from pyspark.sql import functions as sql

        before = self.jobs.rows(self.files).unionAll(self.jobs.rows(self.markers))
        before = before.toDF(*_BEFORE.names)
        now = self.jobs.rows(local, places)
        joined = before.join(now, before["before_path"] == now["path"], "full_outer")
        anywhere = sql.pmod(sql.hash("before_path"), sql.lit(partitions))
        return joined.withColumn("partition", sql.coalesce("partition", anywhere))


def write_plan(plan: Plan, tables: Path, bounds: Bounds) -> SparkPlan:
    """The tables of a plan that was made in this process."""
    whole = plan.collect()
    groups = bounds.part(GROUPS_PER_PARTITION)
    with PartWriter(tables / "uploads", 0, UPLOADS, groups) as uploads:
        for upload in whole.uploads:
            kept = upload.content_type, dump_metadata(upload.metadata)
            record = asdict(upload.record).values()
            uploads.add(upload.path, upload.key, *kept, *record, uploads.group(upload.size))
    with PartWriter(tables / "deletes", 0, DELETES, bounds) as deletes:
        for key in whole.deletes:
            deletes.add(key, deletes.group(0))
    return SparkPlan(uploads.as_table(), deletes.as_table(), whole.unchanged)
