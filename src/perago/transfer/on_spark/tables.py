"""Tables as part files beside the workspace: written and read in bounded memory.

They are where the workspace is, so whoever can move its files can read them. Arrow's own format:
both the worker's process and Spark's Python workers read and write it without the JVM, which
needs no access to the folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from perago.transfer.partition import Bounds, Grouping, TransferSize, pack

Row = dict[str, Any]

_ROWS_PER_BATCH = 10_000

_RECORD = {name: pa.int64() for name in ("size", "mtime_ns", "ctime_ns", "inode")}

# An object as it was listed, with the group it is moved in.
LISTED = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata")},
        "size": pa.int64(),
        "group": pa.int32(),
    }
)
# The same after its download. A marker has a path that ends in a slash, and neither record nor MD5.
FETCHED = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata", "md5")},
        **_RECORD,
    }
)
# A file of the data folder; a folder has a path that ends in a slash, and no record.
LOCAL = pa.schema({"path": pa.string(), **_RECORD, "group": pa.int32()})
UPLOADS = pa.schema(
    {
        **{name: pa.string() for name in ("path", "key", "content_type", "metadata")},
        **_RECORD,
        "group": pa.int32(),
    }
)
DELETES = pa.schema({"key": pa.string(), "group": pa.int32()})
# A unit of a tree, and which task goes through it.
UNITS = pa.schema({"unit": pa.string(), "partition": pa.int32()})
# A name and what is wrong with it, as JSON: names on disk need not be valid UTF-8.
PROBLEMS = pa.schema({"problem": pa.string()})


@dataclass(frozen=True, slots=True)
class Table:
    """Part files by number, each with how much the groups of its rows are to move."""

    folder: Path
    schema: pa.Schema
    parts: Mapping[int, Sequence[TransferSize]]

    def rows(self) -> Iterator[Row]:
        """Every row, in this process."""
        for number in self.parts:
            for batch in read_part(part_path(self.folder, number)):
                yield from batch.to_pylist()

    def groups(self) -> list[TransferSize]:
        return [load for loads in self.parts.values() for load in loads]

    def total(self) -> TransferSize:
        return sum(self.groups(), TransferSize())

    def places(self, bounds: Bounds) -> PartitionAssignment:
        """Share the groups out into bounded partitions."""
        packed = pack(self.groups(), bounds)
        place = iter(packed)
        by_part = {part: [next(place) for _ in loads] for part, loads in self.parts.items()}
        return PartitionAssignment(by_part, max(packed, default=-1) + 1)


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The partition of each group of a table, by part."""

    by_part: Mapping[int, Sequence[int]]
    partitions: int


class PartWriter:
    """Writes one part file in bounded memory, whole or not at all: a task may be repeated.

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
        """Take one row, with the values in the order of the schema."""
        self._rows.append(values)
        self.count += 1
        if len(self._rows) == _ROWS_PER_BATCH:
            self._flush()

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take rows by the names of their columns; what the schema does not have is left out."""
        for row in rows:
            self.add(*(row[name] for name in self._schema.names))

    def group(self, size: int) -> int:
        """The group within this part of an object that is to be moved."""
        return self._grouping.add(size)

    @property
    def table(self) -> str:
        return self._folder.name

    @property
    def loads(self) -> list[TransferSize]:
        return self._grouping.loads

    def as_table(self) -> Table:
        """A table of this part alone, when it is complete."""
        parts = {self._number: self.loads} if self.count else {}
        return Table(self._folder, self._schema, parts)

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


def written(*parts: PartWriter) -> dict[str, Sequence[TransferSize]]:
    """The tables that have a part now, with its groups."""
    return {part.table: part.loads for part in parts if part.count}


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of one part file."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.arrow"


def dump_metadata(metadata: dict[str, str]) -> str:
    return json.dumps(metadata) if metadata else ""


def load_metadata(text: str) -> dict[str, str]:
    return dict(json.loads(text)) if text else {}


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark spells it."""
    names = {pa.string(): "string", pa.int64(): "long", pa.int32(): "int", pa.float64(): "double"}
    return ", ".join(f"`{field.name}` {names[field.type]}" for field in schema)
