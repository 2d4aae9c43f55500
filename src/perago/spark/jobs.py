"""Jobs over a Connect session: frames of part files, and tasks that answer with a row each."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perago.errors import BackendUnavailableError
from perago.protocol.events import EventSink, PhaseEvent
from perago.spark.tables import Table, ddl
from perago.spark.work import ANSWER, Task, read_parts
from perago.transfer.failures import decode
from perago.transfer.partition import Bounds, Load, pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What one partition moved."""

    partition: int
    load: Load
    deletes: int


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs an engine's jobs in one session and tells the sink about each partition."""

    session: Callable[[], SparkSession]
    events: EventSink

    def rows(self, table: Table, places: Mapping[int, int] | None = None) -> DataFrame:
        """The rows of a table; with ``places``, also the partition of each row's group."""
        partition = pa.field("partition", pa.int32())
        schema = table.schema if places is None else table.schema.append(partition)
        # As many Spark partitions as there are part files, each with one number.
        count = len(table.parts)
        numbers = self.session().range(0, count, 1, max(1, count))
        return numbers.mapInArrow(partial(read_parts, table, places), ddl(schema))

    def move(self, phase: str, table: Table, bounds: Bounds, task: Task) -> list[Answer]:
        """Share a table out into bounded partitions, and call a task with each."""
        if not table.groups:
            return []
        packed = pack(list(table.groups.values()), bounds)
        places = dict(zip(table.groups, packed, strict=True))
        return self.run(phase, self.rows(table, places), max(packed) + 1, task)

    def run(self, phase: str, frame: DataFrame, partitions: int, task: Task) -> list[Answer]:
        """Call a task with each partition of a frame; the first error is raised."""
        shared = frame.repartitionById(partitions, frame["partition"])
        answers: list[Answer] = []
        with closing(self._rows(shared.mapInArrow(task, ddl(ANSWER)))) as rows:
            for row in rows:
                if row["error"] is not None:
                    raise decode(row["error"])
                load = Load(row["objects"], row["bytes"])
                answers.append(Answer(row["partition"], load, row["deletes"]))
                self._tell(phase, answers[-1], row["seconds"], f"{len(answers)}/{partitions}")
        return answers

    def _rows(self, frame: DataFrame) -> Generator[dict[str, Any]]:
        """The answers as they come. Whatever ends this early also ends the job."""
        from pyspark.errors import PySparkException

        session, tag = self.session(), f"perago-transfer-{uuid.uuid4().hex}"
        session.addTag(tag)
        try:
            for row in frame.toLocalIterator():
                yield row.asDict()
        except PySparkException as error:
            raise _translated(error) from None
        except BaseException:
            # Not only errors: this generator is closed when an answer is one.
            _interrupt(session, tag)
            raise
        finally:
            session.removeTag(tag)

    def _tell(self, phase: str, answer: Answer, seconds: float, progress: str) -> None:
        details: dict[str, Any] = {
            "partition": progress,
            "objects": answer.load.objects,
            "bytes": answer.load.size,
        }
        if answer.deletes:
            details["deletes"] = answer.deletes
        self.events(PhaseEvent("partition_done", phase, seconds, details))


def _interrupt(session: SparkSession, tag: str) -> None:
    from pyspark.errors import PySparkException

    try:
        session.interruptTag(tag)
    except PySparkException as error:
        # The error that led here is the one to be told.
        _log.warning("failed to interrupt the Spark job %s: %s", tag, type(error).__name__)


def _translated(error: Exception) -> BackendUnavailableError:
    text = " ".join(str(error).partition("JVM stacktrace:")[0].split())
    return BackendUnavailableError(
        f"Spark did not finish the transfer: {type(error).__name__}: {text[-_MAX_TEXT:]}",
        hint="Read the Spark server's log; its Python workers need PERAGO_WORKSPACE_ROOT, as the "
        "same user.",
    )
