"""The distributed engine: the transfer's own plan and partition functions, run by Spark.

What is listed, fetched, scanned and decided are tables beside the data folder, never a list in this
process: it divides the tree into units and holds one number per group of objects. Listing, scan,
join, hashing and moving are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perago.protocol.events import EventSink
from perago.protocol.workspace import StagingBranch
from perago.transfer.engine import download_target, make_folders
from perago.transfer.engines import Plan
from perago.transfer.inventory import ObjectStore, Source, project
from perago.transfer.on_spark import functions
from perago.transfer.on_spark.jobs import Jobs, table_of
from perago.transfer.on_spark.plan import GROUPS_PER_PARTITION, SparkFetched, SparkPlan, write_plan
from perago.transfer.on_spark.subtrees import list_subtrees, problems_in, write_subtrees
from perago.transfer.on_spark.tables import FETCHED, LISTED, Table
from perago.transfer.partition import Bounds
from perago.transfer.paths import FileSystem, check_projection, refuse_keys
from perago.transfer.subtrees import split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A delete costs next to nothing, and a request takes 1000 of them.
_DELETES = Bounds(objects=50_000)


class StoreSerializer(Protocol):
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
    serializer: StoreSerializer
    session: Callable[[], SparkSession]
    events: EventSink
    # Of each task; a machine runs one task per core.
    threads: int = 16
    bounds: Bounds = field(default_factory=Bounds)

    # How many parts a tree is divided into at least, if it can be, to be listed and scanned.
    units: int = 48

    def fetch(self, source: Source, data: Path) -> SparkFetched:
        tables = data.with_name(f"{data.name}.tables")
        tables.mkdir(mode=0o700)
        jobs = Jobs(self.session, self.events)
        with self._task_context(tables, data, source.repository, source.ref) as site:
            listed, markers = self._list(source, site, tables, jobs)
            make_folders((row["path"] for row in markers.rows()), data)
            with download_target(data):
                task = functions.task(functions.download, site, tables)
                answers = jobs.move("download", listed, self.bounds, task)
        return SparkFetched(
            jobs=jobs,
            data=data,
            prefix=source.prefix,
            bounds=self.bounds,
            units=self.units,
            files=table_of(answers, tables / "fetched", FETCHED),
            markers=markers,
        )

    def _list(
        self, source: Source, site: functions.TaskContext, tables: Path, jobs: Jobs
    ) -> tuple[Table, Table]:
        """The files and the markers of a projection, listed in tasks, after a look at every key."""
        system = FileSystem.probe(site.data)
        if system != FileSystem():
            # Names that this file system takes for one may be anywhere: look at the whole.
            whole = project(source.listing(self.store), source.prefix)
            check_projection(whole, site.data, system)
        units = split(partial(source.level, self.store), self.units)
        groups = self.bounds.part(GROUPS_PER_PARTITION)
        task = functions.task(list_subtrees, site, source, tables, groups)
        written = write_subtrees(units, tables / "units")
        answers = jobs.look("download", "list", written, task)
        refuse_keys(problems_in(tables / "bad", answers))
        listed = table_of(answers, tables / "listed", LISTED)
        return listed, table_of(answers, tables / "markers", FETCHED)

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        tables = data.with_name(f"{data.name}.staging")
        tables.mkdir(mode=0o700)
        written = plan if isinstance(plan, SparkPlan) else write_plan(plan, tables, self.bounds)
        jobs = Jobs(self.session, self.events)
        with self._task_context(tables, data, staging.repository, staging.branch) as site:
            jobs.move(
                "stage",
                written.deletes,
                _DELETES,
                functions.task(functions.delete, site),
            )
            jobs.move(
                "stage",
                written.uploads,
                self.bounds,
                functions.task(functions.upload, site),
            )

    @contextmanager
    def _task_context(
        self, tables: Path, data: Path, repository: str, ref: str
    ) -> Iterator[functions.TaskContext]:
        """Where tasks move objects. The store's file is there while they do, and no longer."""
        file = tables / "store"
        self.serializer.pack(file)
        try:
            yield functions.TaskContext(
                data, repository, ref, self.threads, file, self.serializer.open_store
            )
        finally:
            file.unlink()
