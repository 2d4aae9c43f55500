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
from typing import Any

import pyarrow as pa

from perago.transfer.partition import Grouping, Load

Row = dict[str, Any]

_ROWS_PER_PART = 50_000

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


@dataclass(frozen=True, slots=True)
class Table:
    """Part files, and how much each group of their rows is to move."""

    folder: Path
    schema: pa.Schema
    parts: Sequence[int]
    groups: Mapping[int, Load]

    def rows(self) -> Iterator[Row]:
        """Every row, in this process."""
        for number in self.parts:
            for batch in read_part(part_path(self.folder, number)):
                yield from batch.to_pylist()

    def total(self) -> Load:
        return sum(self.groups.values(), Load())


class PartWriter:
    """Writes rows into part files that are numbered without gaps."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir()
        self._folder = folder
        self._parts = 0
        self._schema = schema
        self._rows: list[Sequence[Any]] = []

    def add(self, *values: Any) -> None:
        """Take one row, with the values in the order of the schema."""
        self._rows.append(values)
        if len(self._rows) == _ROWS_PER_PART:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = dict(zip(self._schema.names, zip(*self._rows, strict=True), strict=True))
            write_part(self._folder, self._parts, self._schema, columns)
            self._parts += 1
            self._rows.clear()

    def table(self, grouping: Grouping | None = None) -> Table:
        """The table, when it is complete."""
        self._flush()
        loads = dict(enumerate(grouping.loads)) if grouping else {}
        return Table(self._folder, self._schema, range(self._parts), loads)


def write_part(
    folder: Path, number: int, schema: pa.Schema, columns: Mapping[str, Iterable[Any]]
) -> None:
    """Write one part file, whole or not at all: a task may be repeated."""
    table = pa.table({name: list(columns[name]) for name in schema.names}, schema=schema)
    target = part_path(folder, number)
    fresh = target.with_suffix(f".{uuid.uuid4().hex}")
    with pa.OSFile(str(fresh), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    fresh.replace(target)


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of one part file."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.arrow"


def as_columns(rows: Sequence[Row], schema: pa.Schema) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in schema.names}


def dump_metadata(metadata: dict[str, str]) -> str:
    return json.dumps(metadata) if metadata else ""


def load_metadata(text: str) -> dict[str, str]:
    return dict(json.loads(text)) if text else {}


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark spells it."""
    names = {pa.string(): "string", pa.int64(): "long", pa.int32(): "int", pa.float64(): "double"}
    return ", ".join(f"`{field.name}` {names[field.type]}" for field in schema)
