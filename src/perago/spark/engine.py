"""The distributed engine: the transfer's own plan and partition functions, run by Spark.

What is listed, fetched, scanned and decided are tables beside the data folder, never a list in this
process: it streams the listing and the scan into them and holds one number per group of objects.
Join, hashing and moving are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perago.protocol.events import EventSink
from perago.protocol.workspace import StagingBranch
from perago.spark import work
from perago.spark.jobs import Jobs
from perago.spark.plan import GROUPS_PER_PARTITION, SparkFetched, SparkPlan, write_plan
from perago.spark.tables import FETCHED, LISTED, PartWriter, Table, dump_metadata
from perago.transfer.engine import landing_place, make_folders
from perago.transfer.inventory import Entry, ObjectStore, RemoteObject, project, projected
from perago.transfer.partition import Bounds, Grouping
from perago.transfer.paths import FileSystem, SortedNames, check_projection, refuse_keys, room_in
from perago.transfer.port import Plan, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A delete costs next to nothing, and a request takes 1000 of them.
_DELETES = Bounds(objects=50_000)


class Shipment(Protocol):
    """How a store is opened in Spark's workers: from a file that only this user can read."""

    def pack(self, file: Path) -> None: ...
    @property
    def open_store(self) -> Callable[[Path], ObjectStore]:
        """A function of a module, so that Spark sends its name and no secret."""
        ...


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Moves projections with the tasks of a Spark session."""

    store: ObjectStore
    shipment: Shipment
    session: Callable[[], SparkSession]
    events: EventSink
    # Of each task; a machine runs one task per core.
    threads: int = 16
    bounds: Bounds = field(default_factory=Bounds)

    def fetch(self, source: Source, listing: Iterator[RemoteObject], data: Path) -> SparkFetched:
        tables = data.with_name(f"{data.name}.tables")
        tables.mkdir(mode=0o700)
        listed, markers = self._write_listing(source, listing, data, tables)
        make_folders((row["path"] for row in markers.rows()), data)
        fetched = tables / "fetched"
        fetched.mkdir()
        jobs = Jobs(self.session, self.events)
        with landing_place(data), self._site(tables, data, source.repository, source.ref) as site:
            task = work.task(work.download, site, fetched)
            answers = jobs.move("download", listed, self.bounds, task)
        parts = [answer.partition for answer in answers]
        return SparkFetched(
            jobs=jobs,
            data=data,
            prefix=source.prefix,
            bounds=self.bounds,
            files=Table(fetched, FETCHED, parts, listed.groups),
            markers=markers,
        )

    def _write_listing(
        self, source: Source, listing: Iterator[RemoteObject], data: Path, tables: Path
    ) -> tuple[Table, Table]:
        """Write the listing down as it comes, with a look at every key of it."""
        grouping = Grouping(self.bounds.part(GROUPS_PER_PARTITION))
        listed = PartWriter(tables / "listed", LISTED)
        markers = PartWriter(tables / "markers", FETCHED)
        bad: list[tuple[str, str]] = []
        names = SortedNames(room_in(data))
        for entry in _entries(source, listing, data):
            path, item = entry.path, entry.item
            if why := names.problem(entry):
                bad.append((item.key, why))
            elif entry.is_marker:
                markers.add(f"{path}/", item.key, *[None] * (len(FETCHED) - 2))
            else:
                group, metadata = grouping.add(item.size), dump_metadata(item.metadata)
                listed.add(path, item.key, item.content_type, metadata, item.size, group)
        refuse_keys(bad)
        return listed.table(grouping), markers.table()

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        tables = data.with_name(f"{data.name}.staging")
        tables.mkdir(mode=0o700)
        written = plan if isinstance(plan, SparkPlan) else write_plan(plan, tables, self.bounds)
        jobs = Jobs(self.session, self.events)
        with self._site(tables, data, staging.repository, staging.branch) as site:
            jobs.move("stage", written.deletes, _DELETES, work.task(work.delete, site))
            jobs.move("stage", written.uploads, self.bounds, work.task(work.upload, site))

    @contextmanager
    def _site(self, tables: Path, data: Path, repository: str, ref: str) -> Iterator[work.Site]:
        """Where tasks move objects. The store's file is there while they do, and no longer."""
        file = tables / "store"
        self.shipment.pack(file)
        try:
            yield work.Site(data, repository, ref, self.threads, file, self.shipment.open_store)
        finally:
            file.unlink()


def _entries(source: Source, listing: Iterator[RemoteObject], data: Path) -> Iterator[Entry]:
    entries = projected(listing, source.prefix)
    system = FileSystem.probe(data)
    if system == FileSystem():
        return entries
    # Names that this file system takes for one may be anywhere in a listing: look at the whole.
    known = list(entries)
    check_projection(project((entry.item for entry in known), source.prefix), data, system)
    return iter(known)
