"""What runs in Spark's Python workers: the transfer's partition functions over Arrow batches.

Each task answers with one row: what it moved, or the error that stopped it. An error is a value
here, because an exception would come back as Spark's own, with our text somewhere inside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.moving import (
    DownloadTarget,
    delete_partition,
    download_partition,
    hash_partition,
    upload_partition,
)
from perago.transfer.on_spark.failures import encode
from perago.transfer.on_spark.tables import (
    DELETES,
    FETCHED,
    UPLOADS,
    PartitionAssignment,
    PartWriter,
    Row,
    Table,
    load_metadata,
    part_path,
    read_part,
)
from perago.transfer.partition import TransferSize
from perago.transfer.plan import Upload, is_proven_unchanged
from perago.transfer.scan import FetchedFile, StatRecord

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

ANSWER = pa.schema(
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
class TaskContext:
    """Where a task moves objects, and how it opens the store. Holds no secret."""

    data: Path
    repository: str
    ref: str
    threads: int
    store_file: Path
    open_store: Callable[[Path], ObjectStore]

    def store(self) -> ObjectStore:
        return self.open_store(self.store_file)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What one partition came to."""

    objects: int
    size: int
    deletes: int = 0
    # The tables it wrote a part of, each with the groups in that part.
    parts: Mapping[str, Sequence[TransferSize]] = field(default_factory=dict)


def read_parts(table: Table, places: PartitionAssignment | None, batches: Batches) -> Batches:
    """Each input row stands for a part file: its rows, with the partition of their group."""
    numbers = list(table.parts)
    for batch in batches:
        for position in batch.column(0).to_pylist():
            number = numbers[position]
            for part in read_part(part_path(table.folder, number)):
                if places is None:
                    yield part
                else:
                    place, groups = places.by_part[number], part.column("group").to_pylist()
                    found = [None if group is None else place[group] for group in groups]
                    yield part.append_column("partition", pa.array(found, pa.int32()))


def read_and(task: Task, table: Table, batches: Batches) -> Batches:
    """Call a task with the rows of part files: each step of its own would cost a Python worker."""
    return task(read_parts(table, None, batches))


def answered(work: Callable[[int, list[Row]], PartitionResult], batches: Batches) -> Batches:
    """Do the work of one partition and answer with one row."""
    started = time.perf_counter()
    # Reading is Spark's: what fails there is no error of ours.
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return
    number = rows[0]["partition"]
    moved, error = PartitionResult(0, 0), None
    try:
        moved = work(number, rows)
    except Exception as failure:  # noqa: BLE001  an error is an answer
        error = encode(failure)
    seconds = time.perf_counter() - started
    parts = {name: [astuple(load) for load in loads] for name, loads in moved.parts.items()}
    told = moved.objects, moved.size, moved.deletes, json.dumps(parts)
    values = (number, *told, seconds, error)
    columns = {name: [value] for name, value in zip(ANSWER.names, values, strict=True)}
    yield pa.RecordBatch.from_pydict(columns, schema=ANSWER)


def download(site: TaskContext, tables: Path, number: int, rows: list[Row]) -> PartitionResult:
    """Download a partition and write down what came."""
    objects = [(row["path"], RemoteObject(row["key"], row["size"], "")) for row in rows]
    place = DownloadTarget.beside(site.data)
    fetched = download_partition(
        site.store(), site.repository, site.ref, objects, place, site.threads
    )
    for row in rows:
        came = fetched[row["path"]]
        row.update(_columns_of(came.record), md5=came.md5)
    with PartWriter(tables / "fetched", number, FETCHED) as part:
        part.add_all(rows)
    load = TransferSize(len(rows), sum(row["size"] for row in rows))
    return PartitionResult(load.objects, load.size, parts={"fetched": [load]})


def decide(body_started_ns: int, batches: Batches) -> Batches:
    """Of the joined rows, those that need a further look: all but the proven unchanged."""
    for batch in batches:
        rows = batch.to_pylist()
        kept = [position for position, row in enumerate(rows) if _is_open(row, body_started_ns)]
        yield batch.take(pa.array(kept, pa.int64()))


def _is_open(row: Row, body_started_ns: int) -> bool:
    before, now = row["before_path"], row["path"]
    if before is None or now is None:
        # A folder without a marker is nothing to publish.
        return now is None or not now.endswith("/")
    if now.endswith("/"):
        return False
    fetched = FetchedFile(record_of(row, "before_"), row["before_md5"])
    return not is_proven_unchanged(record_of(row), fetched, body_started_ns)


def compare(data: Path, changes: Path, start: str, number: int, rows: list[Row]) -> PartitionResult:
    """Hash what is in doubt, and write down what has to be uploaded and deleted."""
    there = [row for row in rows if row["path"] is not None]
    suspects = [row["path"] for row in there if row["before_path"] is not None]
    hashes = hash_partition(data, suspects)
    uploads = [
        _as_upload(row, start)
        for row in there
        if row["before_path"] is None or hashes[row["path"]] != row["before_md5"]
    ]
    gone = [{"key": row["before_key"], "group": 0} for row in rows if row["path"] is None]
    with PartWriter(changes / "uploads", number, UPLOADS) as part:
        part.add_all(uploads)
    with PartWriter(changes / "deletes", number, DELETES) as part:
        part.add_all(gone)
    # The rows of a part are one group: a partition's worth at most.
    sent = TransferSize(len(uploads), sum(row["size"] for row in uploads))
    loads = {"uploads": sent, "deletes": TransferSize(len(gone))}
    parts = {name: [load] for name, load in loads.items() if load.objects}
    return PartitionResult(sent.objects, sent.size, len(gone), parts)


def _as_upload(row: Row, start: str) -> Row:
    """A changed object keeps its content type and user metadata."""
    kept = {name: row[f"before_{name}"] for name in ("content_type", "metadata")}
    return {**row, **kept, "key": start + row["path"], "group": 0}


def upload(site: TaskContext, number: int, rows: list[Row]) -> PartitionResult:
    """Upload a partition."""
    uploads = [upload_of(row) for row in rows]
    upload_partition(site.store(), site.repository, site.ref, uploads, site.data, site.threads)
    return PartitionResult(len(uploads), sum(item.size for item in uploads))


def delete(site: TaskContext, number: int, rows: list[Row]) -> PartitionResult:
    """Delete a partition."""
    keys = [row["key"] for row in rows]
    delete_partition(site.store(), site.repository, site.ref, keys, site.threads)
    return PartitionResult(0, 0, len(keys))


def task(work: Callable[..., PartitionResult], *given: object) -> Task:
    """A partition's work as the function that Spark calls."""
    return partial(answered, partial(work, *given))


def record_of(row: Row, start: str = "") -> StatRecord:
    """The stat record in a row."""
    return StatRecord(*(row[start + name] for name in _RECORD_COLUMNS))


def upload_of(row: Row) -> Upload:
    """A row of the uploads' table as the plan has it."""
    kept: dict[str, object] = {}
    if row["content_type"] is not None:
        kept = {"content_type": row["content_type"], "metadata": load_metadata(row["metadata"])}
    return Upload(row["path"], row["key"], record_of(row), **kept)  # type: ignore[arg-type]


_RECORD_COLUMNS = ("size", "mtime_ns", "ctime_ns", "inode")


def _columns_of(record: StatRecord) -> Row:
    return {name: getattr(record, name) for name in _RECORD_COLUMNS}
