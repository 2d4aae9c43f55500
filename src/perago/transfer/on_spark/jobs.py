"""Run Spark jobs over a Connect session: frames of part files, and tasks that return a row each."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perago.errors import BackendUnavailableError
from perago.protocol.events import EventSink, PhaseEvent
from perago.text import shorten_line_start
from perago.transfer.on_spark.failures import decode
from perago.transfer.on_spark.functions import (
    RESULT,
    PartitionFunction,
    PartitionResult,
    read_and_run,
    read_parts,
)
from perago.transfer.on_spark.tables import PartitionAssignment, TransferTable, ddl
from perago.transfer.partition import Bounds, TransferSize, pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

_log = logging.getLogger(__name__)

_MAX_TEXT = 300
# Several small part files are read by one task.
_ROWS_PER_READER = 50_000

# The results of a job, by the number of the partition.
Results = dict[int, PartitionResult]


def table_of(
    results: Mapping[int, PartitionResult], folder: Path, schema: pa.Schema
) -> TransferTable:
    """Build the table in a folder from the parts that partitions wrote."""
    parts = {
        number: result.parts[folder.name]
        for number, result in sorted(results.items())
        if folder.name in result.parts
    }
    return TransferTable(folder, schema, parts)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs an engine's jobs in one session and reports each partition to the event sink."""

    session: Callable[[], SparkSession]
    events: EventSink

    def rows(
        self, table: TransferTable, assignment: PartitionAssignment | None = None
    ) -> DataFrame:
        """Return the rows of a table; with an assignment, each with the partition of its group."""
        partition = pa.field("partition", pa.int32())
        schema = table.schema if assignment is None else table.schema.append(partition)
        numbers = self._numbers(table, table.total().objects // _ROWS_PER_READER + 1)
        return numbers.mapInArrow(partial(read_parts, table, assignment), ddl(schema))

    def _numbers(self, table: TransferTable, readers: int) -> DataFrame:
        """Return a row per part file of a table, divided among a number of readers."""
        return self.session().range(0, len(table.parts), 1, readers)

    def move(
        self, phase: str, table: TransferTable, bounds: Bounds, task: PartitionFunction
    ) -> Results:
        """Divide a table into bounded partitions, and run a task with each."""
        assignment = table.assign(bounds)
        if not assignment.partitions:
            return {}
        if assignment.is_by_part:
            # As partitions are numbered: from the largest to the smallest.
            parts = sorted(table.parts.items(), key=lambda part: assignment.by_part[part[0]][0])
            frame = self._by_part(replace(table, parts=dict(parts)), task, assignment)
            return self._results(phase, frame, assignment.partitions)
        return self.run(phase, self.rows(table, assignment), assignment.partitions, task)

    @contextmanager
    def repacked(self, frame: DataFrame, bounds: Bounds) -> Iterator[tuple[DataFrame, int]]:
        """Provide a frame with its partitions put together as far as the bounds let them.

        And the number of partitions. A task costs much more than a row, and of a frame that was
        filtered most partitions may be empty. The rows are computed once, and kept meanwhile.
        """
        from pyspark.sql import functions as sql

        kept = frame.persist()
        try:
            found = kept.groupBy("partition").agg(
                sql.count("*").alias("objects"), sql.sum(sql.coalesce("size", sql.lit(0)))
            )
            sizes = {number: TransferSize(*size) for number, *size in self._collect(found)}
            packed = pack(list(sizes.values()), bounds)
            numbers = sql.create_map(
                *(sql.lit(number) for pair in zip(sizes, packed, strict=True) for number in pair)
            )
            repacked = kept.withColumn("partition", numbers[kept["partition"]])
            yield repacked, max(packed, default=-1) + 1
        finally:
            kept.unpersist()

    def run(
        self, phase: str, frame: DataFrame, partitions: int, task: PartitionFunction
    ) -> Results:
        """Run a task with each partition of a frame."""
        divided = frame.repartitionById(partitions, frame["partition"])
        return self._results(phase, divided.mapInArrow(task, ddl(RESULT)), partitions)

    def inspect(
        self, phase: str, what: str, subtrees: TransferTable, task: PartitionFunction
    ) -> Results:
        """Run a task that lists or scans with each part of a table of subtrees."""
        return self._results(phase, self._by_part(subtrees, task), len(subtrees.parts), what)

    def _by_part(
        self,
        table: TransferTable,
        task: PartitionFunction,
        assignment: PartitionAssignment | None = None,
    ) -> DataFrame:
        """Run a task with each part of a table: no row is brought to another task."""
        running = partial(read_and_run, task, table, assignment)
        return self._numbers(table, len(table.parts)).mapInArrow(running, ddl(RESULT))

    def _results(
        self, phase: str, frame: DataFrame, partitions: int, what: str | None = None
    ) -> Results:
        """Collect the results of all tasks; the first error of a task is raised."""
        results: Results = {}
        with closing(self._collect(frame)) as rows:
            for found in rows:
                row = found.asDict()
                if row["error"] is not None:
                    raise decode(row["error"])
                result = results[row["partition"]] = PartitionResult.of_row(row)
                progress = f"{len(results)}/{partitions}"
                self._report(phase, what, result, row["seconds"], progress)
        return results

    def _collect(self, frame: DataFrame) -> Generator[SparkRow]:
        """Yield the rows as they arrive. Closing the generator early ends the job."""
        from pyspark.errors import PySparkException

        session, tag = self.session(), f"perago-transfer-{uuid.uuid4().hex}"
        session.addTag(tag)
        try:
            yield from frame.toLocalIterator()
        except PySparkException as error:
            raise _translated(error) from None
        except BaseException:
            # Not only errors: the generator is also closed when a row holds an error.
            _interrupt(session, tag)
            raise
        finally:
            session.removeTag(tag)

    def _report(
        self, phase: str, what: str | None, result: PartitionResult, seconds: float, progress: str
    ) -> None:
        details: dict[str, Any] = {"partition": progress}
        if what is None:
            details |= {"objects": result.total.objects, "bytes": result.total.size}
        else:
            # Objects that were only listed or scanned do not count: the same phase moves them too.
            details |= {"what": what, "found": result.total.objects}
        if result.deletes:
            details["deletes"] = result.deletes
        self.events(PhaseEvent("partition_done", phase, seconds, details))


def _interrupt(session: SparkSession, tag: str) -> None:
    from pyspark.errors import PySparkException

    try:
        session.interruptTag(tag)
    except PySparkException as error:
        # Logged and not raised: the error that led here is raised.
        _log.warning("failed to interrupt the Spark job %s: %s", tag, type(error).__name__)


def _translated(error: Exception) -> BackendUnavailableError:
    text = shorten_line_start(str(error).partition("JVM stacktrace:")[0], _MAX_TEXT)
    return BackendUnavailableError(
        f"Spark did not finish the transfer: {type(error).__name__}: {text}",
        hint="Read the Spark server's log; its Python workers need PERAGO_WORKSPACE_ROOT, as the "
        "same user.",
    )
