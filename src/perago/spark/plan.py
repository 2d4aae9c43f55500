"""The sync plan as tables: from what was fetched and what is there now, by a join on the path."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perago.spark import work
from perago.spark.jobs import Answer, Jobs
from perago.spark.tables import (
    DELETES,
    FETCHED,
    LOCAL,
    UPLOADS,
    PartWriter,
    Table,
    ddl,
    dump_metadata,
)
from perago.transfer.inventory import listing_prefix
from perago.transfer.partition import Bounds, Grouping, Load, pack
from perago.transfer.paths import publish_problems, refuse_paths
from perago.transfer.plan import SyncPlan
from perago.transfer.port import Plan
from perago.transfer.scan import scanned

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
        return bool(self.uploads.groups or self.deletes.groups)

    def summary(self) -> dict[str, int]:
        uploads, deletes = self.uploads.total(), self.deletes.total()
        return {
            "uploads": uploads.objects,
            "upload_bytes": uploads.size,
            "deletes": deletes.objects,
            "unchanged": self.unchanged,
        }

    def collect(self) -> SyncPlan:
        uploads = sorted(map(work.upload_of, self.uploads.rows()), key=lambda one: one.path)
        deletes = sorted(row["key"] for row in self.deletes.rows())
        return SyncPlan(tuple(uploads), tuple(deletes), self.unchanged)


@dataclass(frozen=True, slots=True)
class SparkFetched:
    """What was fetched, as tables: files with their records and hashes, and markers."""

    jobs: Jobs
    data: Path
    prefix: str
    bounds: Bounds
    files: Table
    markers: Table

    def counts(self) -> dict[str, int]:
        total = self.files.total()
        return {"objects": total.objects, "bytes": total.size}

    def changes(self, body_started_ns: int) -> SparkPlan:
        # A name of its own: a plan may be made more than once.
        changes = self.data.with_name(f"{self.data.name}.changes-{uuid.uuid4().hex}")
        for name in ("", "uploads", "deletes"):
            (changes / name).mkdir(mode=0o700)
        local = self._write_local(changes)
        packed = pack(list(local.groups.values()), self.bounds)
        places = dict(zip(local.groups, packed, strict=True))
        gone = self.files.total().objects // _GONE_PER_PARTITION + 1
        partitions = max([gone, *(place + 1 for place in packed)])
        joined = self._joined(local, places, partitions)
        open_rows = joined.mapInArrow(partial(work.decide, body_started_ns), ddl(_JOINED))
        start = listing_prefix(self.prefix)
        task = work.task(work.compare, self.data, changes, start)
        answers = self.jobs.run("diff", open_rows, partitions, task)
        return _plan_of(answers, changes, local.total().objects)

    def _write_local(self, changes: Path) -> Table:
        """Write the scan of the data folder down as it goes, with a look at every name."""
        grouping = Grouping(self.bounds.part(GROUPS_PER_PARTITION))
        local = PartWriter(changes / "local", LOCAL)
        bad: list[tuple[str, str]] = []
        for path, record in scanned(self.data):
            name = path if record is not None else f"{path}/"
            if problems := [(name, why) for why in publish_problems(name, self.prefix)]:
                bad += problems
            elif record is None:
                local.add(name, *[None] * (len(LOCAL) - 1))
            else:
                local.add(name, *asdict(record).values(), grouping.add(record.size))
        refuse_paths(bad)
        return local.table(grouping)

    def _joined(self, local: Table, places: dict[int, int], partitions: int) -> DataFrame:
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
    sizes, counts = Grouping(bounds.part(GROUPS_PER_PARTITION)), Grouping(bounds)
    uploads = PartWriter(tables / "uploads", UPLOADS)
    for upload in whole.uploads:
        kept = upload.content_type, dump_metadata(upload.metadata)
        record = asdict(upload.record).values()
        uploads.add(upload.path, upload.key, *kept, *record, sizes.add(upload.size))
    deletes = PartWriter(tables / "deletes", DELETES)
    for key in whole.deletes:
        deletes.add(key, counts.add(0))
    return SparkPlan(uploads.table(sizes), deletes.table(counts), whole.unchanged)


def _plan_of(answers: list[Answer], changes: Path, files: int) -> SparkPlan:
    """Each task wrote its own part, which is one group."""
    uploads = {answer.partition: answer.load for answer in answers if answer.load.objects}
    deletes = {answer.partition: Load(answer.deletes) for answer in answers if answer.deletes}
    sent = sum(load.objects for load in uploads.values())
    return SparkPlan(
        Table(changes / "uploads", UPLOADS, sorted(uploads), uploads),
        Table(changes / "deletes", DELETES, sorted(deletes), deletes),
        files - sent,
    )
