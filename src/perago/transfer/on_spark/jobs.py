"""Jobs over a Connect session: frames of part files, and tasks that answer with a row each."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perago.errors import BackendUnavailableError
from perago.protocol.events import EventSink, PhaseEvent
from perago.transfer.on_spark.failures import decode
from perago.transfer.on_spark.functions import ANSWER, Task, read_and, read_parts
from perago.transfer.on_spark.tables import PartitionAssignment, Table, ddl
from perago.transfer.partition import Bounds, TransferSize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_MAX_TEXT = 300
# Small part files are read several in one go.
_ROWS_PER_READ = 50_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What one partition moved, and the parts of tables that it wrote."""

    partition: int
    load: TransferSize
    deletes: int
    parts: Mapping[str, Sequence[TransferSize]]


def table_of(answers: Iterable[Answer], folder: Path, schema: pa.Schema) -> Table:
    """The table in a folder that partitions wrote parts of."""
    wrote = [answer for answer in answers if folder.name in answer.parts]
    wrote.sort(key=lambda answer: answer.partition)
    return Table(folder, schema, {one.partition: one.parts[folder.name] for one in wrote})


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs an engine's jobs in one session and tells the sink about each partition."""

    session: Callable[[], SparkSession]
    events: EventSink

    def rows(self, table: Table, places: PartitionAssignment | None = None) -> DataFrame:
        """The rows of a table; with ``places``, also the partition of each row's group."""
        partition = pa.field("partition", pa.int32())
        schema = table.schema if places is None else table.schema.append(partition)
        numbers = self._numbers(table, table.total().objects // _ROWS_PER_READ + 1)
        return numbers.mapInArrow(partial(read_parts, table, places), ddl(schema))

    def _numbers(self, table: Table, readers: int) -> DataFrame:
        """A number for each part file of a table, shared out among so many readers."""
        return self.session().range(0, len(table.parts), 1, readers)

    def move(self, phase: str, table: Table, bounds: Bounds, task: Task) -> list[Answer]:
        """Share a table out into bounded partitions, and call a task with each."""
        places = table.places(bounds)
        if not places.partitions:
            return []
        return self.run(phase, self.rows(table, places), places.partitions, task)

    def run(self, phase: str, frame: DataFrame, partitions: int, task: Task) -> list[Answer]:
        """Call a task with each partition of a frame."""
        shared = frame.repartitionById(partitions, frame["partition"])
        return self._answers(phase, shared.mapInArrow(task, ddl(ANSWER)), partitions)

    def look(self, phase: str, what: str, units: Table, task: Task) -> list[Answer]:
        """Call a task with each part of a table of units."""
        count = len(units.parts)
        looking = partial(read_and, task, units)
        frame = self._numbers(units, count).mapInArrow(looking, ddl(ANSWER))
        return self._answers(phase, frame, count, what)

    def _answers(
        self, phase: str, frame: DataFrame, partitions: int, what: str | None = None
    ) -> list[Answer]:
        """What the tasks answer; the first error is raised."""
        answers: list[Answer] = []
        with closing(self._rows(frame)) as rows:
            for row in rows:
                if row["error"] is not None:
                    raise decode(row["error"])
                answers.append(_answer(row))
                progress = f"{len(answers)}/{partitions}"
                self._tell(phase, what, answers[-1], row["seconds"], progress)
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

    def _tell(
        self, phase: str, what: str | None, answer: Answer, seconds: float, progress: str
    ) -> None:
        details: dict[str, Any] = {"partition": progress}
        if what is None:
            details |= {"objects": answer.load.objects, "bytes": answer.load.size}
        else:
            # What was only looked at is not told as objects: the same phase moves them too.
            details |= {"what": what, "found": answer.load.objects}
        if answer.deletes:
            details["deletes"] = answer.deletes
        self.events(PhaseEvent("partition_done", phase, seconds, details))


def _answer(row: dict[str, Any]) -> Answer:
    told = json.loads(row["parts"])
    parts = {name: [TransferSize(*load) for load in loads] for name, loads in told.items()}
    return Answer(
        row["partition"], TransferSize(row["objects"], row["bytes"]), row["deletes"], parts
    )


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
