"""The Spark engine: the transfer's plan and partition functions, run by tasks of Spark jobs.

Listing, download, scan and plan are tables beside the data folder, never lists in this process: it
divides the tree into subtrees and holds one size per group of objects. Spark lists, scans, joins,
hashes and moves. Only a comparison that is within bounds is made in this process, in memory.
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
from perago.transfer.engine import Engine, download_target, make_folders
from perago.transfer.engines import Plan
from perago.transfer.inventory import ObjectStore, Source, project
from perago.transfer.on_spark import functions
from perago.transfer.on_spark.jobs import Jobs, table_of
from perago.transfer.on_spark.plan import GROUPS_PER_PARTITION, SparkFetched, SparkPlan, write_plan
from perago.transfer.on_spark.subtrees import list_subtrees, problems_in, write_subtrees
from perago.transfer.on_spark.tables import FETCHED, LISTED, TransferTable
from perago.transfer.partition import Bounds
from perago.transfer.paths import FileSystem, check_projection, refuse_keys
from perago.transfer.subtrees import split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A delete costs very little, and one request takes many of them.
_DELETES = Bounds(objects=50_000)
# What is compared in this process. Three jobs take 3 s, whatever they do: meanwhile one process
# scans as many files, or hashes as many bytes. It needs some 60 MB for them.
COMPARED_HERE = Bounds(objects=50_000, size=1 << 30)


class StoreSerializer(Protocol):
    """Carries a store to Spark's workers, in a file that only this user can read."""

    def pack(self, file: Path) -> None:
        """Write the file; raises ``FileExistsError`` if it exists."""
        ...

    @property
    def open_store(self) -> Callable[[Path], ObjectStore]:
        """The function that opens the store from the file.

        It is a function of a module, so that Spark sends its name and no secret.
        """
        ...


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Moves projections with the tasks of a Spark session."""

    store: ObjectStore
    serializer: StoreSerializer
    session: Callable[[], SparkSession]
    events: EventSink
    # Threads of each task; a machine runs one task per core.
    threads: int = 16
    bounds: Bounds = field(default_factory=Bounds)
    # A tree is divided into at least so many subtrees, if it can be, to be listed and scanned.
    min_subtrees: int = 48
    compared_here: Bounds = COMPARED_HERE

    @property
    def cache(self) -> None:
        """None: tasks may run on other hosts."""

    def fetch(self, source: Source, data: Path) -> SparkFetched:
        tables = data.with_name(f"{data.name}.tables")
        tables.mkdir(mode=0o700)
        jobs = Jobs(self.session, self.events)
        task_context = partial(
            self._task_context, data=data, repository=source.repository, ref=source.ref
        )
        with task_context(tables) as context:
            listed, markers = self._list(source, context, tables, jobs)
            make_folders((row["path"] for row in markers.rows()), data)
            with download_target(data):
                task = functions.task(functions.download, context, tables)
                results = jobs.move("download", listed, self.bounds, task)
        return SparkFetched(
            jobs=jobs,
            task_context=task_context,
            data=data,
            source=source,
            bounds=self.bounds,
            min_subtrees=self.min_subtrees,
            files=table_of(results, tables / "fetched", FETCHED),
            markers=markers,
            in_process=Engine(self.store, self.threads),
            compared_here=self.compared_here,
        )

    def _list(
        self, source: Source, context: functions.TransferContext, tables: Path, jobs: Jobs
    ) -> tuple[TransferTable, TransferTable]:
        """List a projection in tasks and check its keys; return the tables of files and markers."""
        system = FileSystem.probe(context.data)
        if system != FileSystem():
            # Names that are one file here may be in different subtrees: check all together.
            projection = project(source.listing(self.store), source.prefix)
            check_projection(projection, context.data, system)
        subtrees = split(partial(source.level, self.store), self.min_subtrees)
        groups = self.bounds.part(GROUPS_PER_PARTITION)
        task = functions.task(list_subtrees, context, source, tables, groups)
        written = write_subtrees(subtrees, tables / "subtrees")
        results = jobs.inspect("download", "list", written, task)
        refuse_keys(problems_in(tables / "bad", results))
        listed = table_of(results, tables / "listed", LISTED)
        return listed, table_of(results, tables / "markers", FETCHED)

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> dict[str, int]:
        tables = data.with_name(f"{data.name}.staging")
        tables.mkdir(mode=0o700)
        written = plan if isinstance(plan, SparkPlan) else write_plan(plan, tables, self.bounds)
        jobs = Jobs(self.session, self.events)
        with self._task_context(tables, data, staging.repository, staging.branch) as context:
            jobs.move(
                "stage",
                written.deletes,
                _DELETES,
                functions.task(functions.delete, context),
            )
            jobs.move(
                "stage",
                written.uploads,
                self.bounds,
                functions.task(functions.upload, context),
            )
        return {}

    @contextmanager
    def _task_context(
        self, tables: Path, data: Path, repository: str, ref: str
    ) -> Iterator[functions.TransferContext]:
        """Provide the context of tasks. The store's file exists within the block only."""
        file = tables / "store"
        self.serializer.pack(file)
        try:
            yield functions.TransferContext(
                data, repository, ref, self.threads, file, self.serializer.open_store
            )
        finally:
            file.unlink()
