"""Tables as part files beside the workspace, written and read in bounded memory.

Every process that can move the workspace's files can read them there. The format is Arrow's: the
worker's process and Spark's Python workers read and write it without the JVM, which needs no
access to the folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from perago.transfer.partition import Bounds, Grouping, TransferSize, pack

Row = dict[str, Any]

_ROWS_PER_BATCH = 10_000

# The columns of a stat record, and their values: much faster than a dictionary of each.
RECORD = ("size", "mtime_ns", "ctime_ns", "inode")
values_of = attrgetter(*RECORD)
_RECORD = {name: pa.int64() for name in RECORD}

# An object of a listing, with the group that it is moved in.
LISTED = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata", "checksum")},
        "size": pa.int64(),
        "group": pa.int32(),
    }
)
# A downloaded object. A marker has a path that ends in a slash, and neither record nor digest.
FETCHED = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata", "digest")},
        "is_hashed": pa.bool_(),
        **_RECORD,
    }
)
# A file of the data folder. A folder has a path that ends in a slash, and no record.
LOCAL = pa.schema({"path": pa.string(), **_RECORD, "group": pa.int32()})
UPLOADS = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata")},
        **_RECORD,
        "group": pa.int32(),
    }
)
DELETES = pa.schema({"key": pa.string(), "group": pa.int32()})
# A subtree, and the number of the task that processes it.
SUBTREES = pa.schema({"subtree": pa.string(), "partition": pa.int32()})
# A name and its problem, as JSON: names on disk need not be valid UTF-8.
PROBLEMS = pa.schema({"problem": pa.string()})


@dataclass(frozen=True, slots=True)
class TransferTable:
    """Part files by number, each with the sizes of the groups in it."""

    folder: Path
    schema: pa.Schema
    parts: Mapping[int, Sequence[TransferSize]]

    def rows(self) -> Iterator[Row]:
        """Read every row, in this process."""
        for number in self.parts:
            for batch in read_part(part_path(self.folder, number)):
                yield from batch.to_pylist()

    def group_sizes(self) -> list[TransferSize]:
        """Return the sizes of all groups, part by part."""
        return [size for sizes in self.parts.values() for size in sizes]

    def total(self) -> TransferSize:
        """Return the size of the whole table."""
        return sum(self.group_sizes(), TransferSize())

    def assign(self, bounds: Bounds) -> PartitionAssignment:
        """Assign the groups to bounded partitions."""
        packed = pack(self.group_sizes(), bounds)
        partition = iter(packed)
        by_part = {part: [next(partition) for _ in sizes] for part, sizes in self.parts.items()}
        return PartitionAssignment(by_part, max(packed, default=-1) + 1)


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The partition of each group of a table, by part, and the number of partitions."""

    by_part: Mapping[int, Sequence[int]]
    partitions: int

    @property
    def is_by_part(self) -> bool:
        """Whether each part is a partition: then no row needs to be brought to another one."""
        whole = all(len(set(groups)) == 1 for groups in self.by_part.values())
        return whole and len(self.by_part) == self.partitions


class PartWriter:
    """Writes one part file, atomically and in bounded memory; Spark may retry the task.

    Without a row there is no file.
    """

    def __init__(
        self, folder: Path, number: int, schema: pa.Schema, bounds: Bounds | None = None
    ) -> None:
        self.count = 0
        self._folder = folder
        self._number = number
        self._schema = schema
        self._grouping = Grouping(bounds or Bounds())
        self._target = part_path(folder, number)
        self._fresh = self._target.with_suffix(f".{uuid.uuid4().hex}")
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows: list[Sequence[Any]] = []

    def add(self, *values: Any) -> None:
        """Add one row, with the values in the order of the schema."""
        self._rows.append(values)
        self.count += 1
        if len(self._rows) == _ROWS_PER_BATCH:
            self._flush()

    def add_all(self, rows: Iterable[Row]) -> None:
        """Add rows by the names of their columns; columns outside the schema are ignored."""
        for row in rows:
            self.add(*(row[name] for name in self._schema.names))

    def group(self, size: int) -> int:
        """Assign an object to a group of this part; return the number of the group."""
        return self._grouping.add(size)

    @property
    def table(self) -> str:
        return self._folder.name

    @property
    def group_sizes(self) -> list[TransferSize]:
        return self._grouping.sizes

    def as_table(self) -> TransferTable:
        """Return a table of this part alone, when it is complete."""
        parts = {self._number: self.group_sizes} if self.count else {}
        return TransferTable(self._folder, self._schema, parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and self._rows:
            self._flush()
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            self._fresh.replace(self._target)
        else:
            self._fresh.unlink()

    def _flush(self) -> None:
        if self._writer is None:
            self._folder.mkdir(exist_ok=True)
            self._writer = pa.ipc.new_stream(str(self._fresh), self._schema)
        columns = zip(self._schema.names, zip(*self._rows, strict=True), strict=True)
        self._writer.write_table(pa.table(dict(columns), schema=self._schema))
        self._rows.clear()


def written_parts(*writers: PartWriter) -> dict[str, Sequence[TransferSize]]:
    """Return the tables for which a part was written, each with the group sizes of the part."""
    return {writer.table: writer.group_sizes for writer in writers if writer.count}


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """Read the batches of one part file."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.arrow"


def dump_metadata(metadata: dict[str, str]) -> str:
    return json.dumps(metadata) if metadata else ""


def load_metadata(text: str) -> dict[str, str]:
    return dict(json.loads(text)) if text else {}


def ddl(schema: pa.Schema) -> str:
    """Return a schema in Spark's notation."""
    names = {
        pa.string(): "string",
        pa.bool_(): "boolean",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float64(): "double",
    }
    return ", ".join(f"`{field.name}` {names[field.type]}" for field in schema)
