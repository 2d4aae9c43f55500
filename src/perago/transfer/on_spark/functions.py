"""Functions that run in Spark's Python workers: the partition functions over Arrow batches.

Each task returns one row: the result of its partition, or the error that stopped it. An error is
a value in that row, because an exception would arrive as Spark's own, with its text inside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from perago.transfer.comparing import Suspect, changed_files
from perago.transfer.downloading import DownloadTarget, download_partition
from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.on_spark.failures import encode
from perago.transfer.on_spark.tables import (
    DELETES,
    FETCHED,
    RECORD,
    UPLOADS,
    PartitionAssignment,
    PartWriter,
    Row,
    TransferTable,
    load_metadata,
    part_path,
    read_part,
    values_of,
)
from perago.transfer.partition import TransferSize
from perago.transfer.plan import Upload
from perago.transfer.scan import StatRecord
from perago.transfer.uploading import delete_partition, upload_partition

Batches = Iterator[pa.RecordBatch]
PartitionFunction = Callable[[Batches], Batches]

# The row that a task returns.
RESULT = pa.schema(
    {
        "partition": pa.int32(),
        "objects": pa.int64(),
        "bytes": pa.int64(),
        "deletes": pa.int64(),
        "parts": pa.string(),
        "seconds": pa.float64(),
        "error": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class TransferContext:
    """Where a task moves objects, and how it opens the store. Holds no secret."""

    data: Path
    repository: str
    ref: str
    threads: int
    store_file: Path
    open_store: Callable[[Path], ObjectStore]

    def store(self) -> ObjectStore:
        """Open the store; raises ``OSError`` if its file was removed."""
        return self.open_store(self.store_file)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What the task of one partition moved or found, and the parts of tables that it wrote."""

    total: TransferSize
    deletes: int = 0
    # The group sizes of each part, by the name of its table.
    parts: Mapping[str, Sequence[TransferSize]] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Row) -> PartitionResult:
        """Read the result from a row of ``RESULT``."""
        parts = {
            name: [TransferSize(*size) for size in sizes]
            for name, sizes in json.loads(row["parts"]).items()
        }
        return cls(TransferSize(row["objects"], row["bytes"]), row["deletes"], parts)

    def columns(self) -> tuple[int, int, int, str]:
        """Return the objects, bytes, deletes and parts of a row of ``RESULT``."""
        parts = {name: [astuple(size) for size in sizes] for name, sizes in self.parts.items()}
        return self.total.objects, self.total.size, self.deletes, json.dumps(parts)


def read_parts(
    table: TransferTable, assignment: PartitionAssignment | None, batches: Batches
) -> Batches:
    """Read the part files that the input rows number.

    With an assignment, each row also gets the partition of its group.
    """
    numbers = list(table.parts)
    for batch in batches:
        for position in batch.column(0).to_pylist():
            number = numbers[position]
            for part in read_part(part_path(table.folder, number)):
                if assignment is None:
                    yield part
                else:
                    by_group, groups = assignment.by_part[number], part.column("group").to_pylist()
                    found = [None if group is None else by_group[group] for group in groups]
                    yield part.append_column("partition", pa.array(found, pa.int32()))


def read_and_run(
    task: PartitionFunction,
    table: TransferTable,
    assignment: PartitionAssignment | None,
    batches: Batches,
) -> Batches:
    """Run a task with the rows of part files, in one step: two would need two Python workers."""
    return task(read_parts(table, assignment, batches))


def run_partition(work: Callable[[int, list[Row]], PartitionResult], batches: Batches) -> Batches:
    """Call ``work`` with the number and the rows of a partition; yield its result as one row."""
    started = time.perf_counter()
    # Outside of the try: an error of reading is Spark's.
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return
    number = rows[0]["partition"]
    result, error = PartitionResult(TransferSize()), None
    try:
        result = work(number, rows)
    except Exception as failure:  # noqa: BLE001  returned in the row
        error = encode(failure)
    values = (number, *result.columns(), time.perf_counter() - started, error)
    columns = {name: [value] for name, value in zip(RESULT.names, values, strict=True)}
    yield pa.RecordBatch.from_pydict(columns, schema=RESULT)


def download(
    context: TransferContext, tables: Path, number: int, rows: list[Row]
) -> PartitionResult:
    """Download a partition and write the records and hashes of its files to a table."""
    objects = [
        (row["path"], RemoteObject(row["key"], row["size"], checksum=row["checksum"]))
        for row in rows
    ]
    target = DownloadTarget.beside(context.data)
    fetched = download_partition(
        context.store(), context.repository, context.ref, objects, target, context.threads
    )
    for row in rows:
        file = fetched[row["path"]]
        row.update(zip(RECORD, values_of(file.record), strict=True))
        row.update(digest=file.digest, is_hashed=file.is_hashed)
    with PartWriter(tables / "fetched", number, FETCHED) as part:
        part.add_all(rows)
    total = TransferSize(len(rows), sum(row["size"] for row in rows))
    return PartitionResult(total, parts={"fetched": [total]})


def compare(
    context: TransferContext, changes: Path, start: str, number: int, rows: list[Row]
) -> PartitionResult:
    """Compare the files that may have changed; write tables of the uploads and deletes."""
    present = [row for row in rows if row["path"] is not None]
    suspects = [_suspect(row) for row in present if row["before_path"] is not None]
    changed = changed_files(
        context.store(),
        context.repository,
        context.ref,
        context.data,
        suspects,
        context.threads,
    )
    uploads = [
        _as_upload(row, start)
        for row in present
        if row["before_path"] is None or row["path"] in changed
    ]
    deletes = [{"key": row["before_key"], "group": 0} for row in rows if row["path"] is None]
    with PartWriter(changes / "uploads", number, UPLOADS) as part:
        part.add_all(uploads)
    with PartWriter(changes / "deletes", number, DELETES) as part:
        part.add_all(deletes)
    # The rows of a part are one group: at most a partition.
    uploaded = TransferSize(len(uploads), sum(row["size"] for row in uploads))
    sizes = {"uploads": uploaded, "deletes": TransferSize(len(deletes))}
    parts = {name: [size] for name, size in sizes.items() if size.objects}
    return PartitionResult(uploaded, len(deletes), parts)


def _suspect(row: Row) -> Suspect:
    known = (row[f"before_{name}"] for name in ("key", "size", "digest", "is_hashed"))
    return Suspect(row["path"], *known)


def _as_upload(row: Row, start: str) -> Row:
    """Return the row of an upload; a changed object keeps its content type and user metadata."""
    kept = {name: row[f"before_{name}"] for name in ("content_type", "metadata")}
    return {**row, **kept, "key": start + row["path"], "group": 0}


def upload(context: TransferContext, number: int, rows: list[Row]) -> PartitionResult:
    """Upload a partition."""
    uploads = [upload_of(row) for row in rows]
    upload_partition(
        context.store(),
        context.repository,
        context.ref,
        uploads,
        context.data,
        context.threads,
    )
    return PartitionResult(TransferSize(len(uploads), sum(item.size for item in uploads)))


def delete(context: TransferContext, number: int, rows: list[Row]) -> PartitionResult:
    """Delete a partition."""
    keys = [row["key"] for row in rows]
    delete_partition(context.store(), context.repository, context.ref, keys, context.threads)
    return PartitionResult(TransferSize(), len(keys))


def task(work: Callable[..., PartitionResult], *given: object) -> PartitionFunction:
    """Bind the first arguments of a partition's work; return the function that Spark calls."""
    return partial(run_partition, partial(work, *given))


def record_of(row: Row) -> StatRecord:
    """Read the stat record from a row of a table that has one."""
    return StatRecord(*(row[name] for name in RECORD))


def upload_of(row: Row) -> Upload:
    """Read the upload from a row of the uploads' table."""
    kept: dict[str, object] = {}
    if row["content_type"] is not None:
        kept = {"content_type": row["content_type"], "metadata": load_metadata(row["metadata"])}
    return Upload(row["path"], row["key"], record_of(row), **kept)  # type: ignore[arg-type]
