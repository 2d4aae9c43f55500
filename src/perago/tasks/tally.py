"""Count what guardrails ask for over the Arrow batches of a table, in bounded memory.

What must be unique is kept in a temporary SQLite database, which goes to disk when it grows.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from perago.tasks.arrow_types import merged_type, partition_type
from perago.tasks.data import Measure

# For each group of columns that must be unique; what does not fit is on disk.
_CACHE_KIB = 16_384


@dataclass(slots=True)
class Tally:
    """What was counted over all files so far."""

    distinct: Sequence[tuple[str, ...]]
    rows: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    schemas: list[Any] = field(default_factory=list)
    partitions: dict[str, set[str | None]] = field(default_factory=dict)
    partition: Mapping[str, str | None] = field(default_factory=dict)
    keys: dict[tuple[str, ...], _Keys] = field(default_factory=dict)
    inferred: bool = False

    def __post_init__(self) -> None:
        self.keys = {columns: _Keys(len(columns)) for columns in self.distinct}

    def close(self) -> None:
        for keys in self.keys.values():
            keys.close()

    def begin_file(self, partition: Mapping[str, str | None]) -> None:
        self.partition = partition
        for name, value in partition.items():
            self.partitions.setdefault(name, set()).add(value)

    def add_schema(self, schema: Any, *, inferred: bool = False) -> None:
        self.inferred = inferred
        plain = schema.remove_metadata()
        if plain not in self.schemas:
            self.schemas.append(plain)

    def add(self, batch: Any) -> None:
        # Of columns with the same name, the first.
        columns = dict(zip(reversed(batch.schema.names), reversed(batch.columns), strict=True))
        self.add_rows(batch.num_rows, columns)

    def add_rows(self, count: int, columns: Mapping[str, Any] | None = None) -> None:
        """Count rows; what they have beside their partition is in ``columns``."""
        columns = columns or {}
        self.rows += count
        for name, value in self.partition.items():
            self.present[name] += count
            self.nulls[name] += count if value is None else 0
        for name in columns.keys() - self.partition.keys():
            self.present[name] += count
            self.nulls[name] += columns[name].null_count
        for names, keys in self.keys.items():
            keys.add([self._values(columns, name, count) for name in names])

    def types(self) -> dict[str, str]:
        found: dict[str, list[Any]] = {}
        for schema in self.schemas:
            for column in schema:
                found.setdefault(column.name, []).append(column.type)
        types = {name: merged_type(kinds, self.inferred) for name, kinds in found.items()}
        return types | {name: partition_type(it) for name, it in self.partitions.items()}

    def number(self, measure: Measure) -> int:
        match measure.kind:
            case "rows":
                return self.rows
            case "nulls":
                [name] = measure.columns
                # Rows of files that do not have the column are null in it.
                return self.nulls[name] + self.rows - self.present[name]
            case _:
                return self.keys[measure.columns].count()

    def _values(self, columns: Mapping[str, Any], name: str, count: int) -> Any:
        if name in self.partition or name not in columns:
            return repeat(self.partition.get(name), count)
        return _sql_values(columns[name])


class _Keys:
    """The values of some columns, one row each, on disk when they are many."""

    def __init__(self, width: int) -> None:
        # A database without a name is a temporary file that is there when the cache is full.
        self._database = sqlite3.connect("", isolation_level=None)
        self._columns = ", ".join(f"c{number}" for number in range(width))
        places = ", ".join("?" * width)
        self._insert = f"INSERT INTO keys VALUES ({places})"  # noqa: S608  no text from outside
        for statement in (
            "PRAGMA journal_mode = OFF",
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = FILE",
            f"CREATE TABLE keys ({self._columns})",
            "BEGIN",
        ):
            self._database.execute(statement)

    def add(self, columns: Sequence[Iterable[object]]) -> None:
        self._database.executemany(self._insert, zip(*columns, strict=True))

    def count(self) -> int:
        grouped = f"SELECT 1 FROM keys GROUP BY {self._columns}"  # noqa: S608  as above
        [count] = self._database.execute(f"SELECT count(*) FROM ({grouped})").fetchone()  # noqa: S608
        return int(count)

    def repeated(self, most: int) -> list[tuple[object, ...]]:
        columns = self._columns
        query = f"SELECT {columns} FROM keys GROUP BY {columns} HAVING count(*) > 1 LIMIT ?"  # noqa: S608
        return self._database.execute(query, (most,)).fetchall()

    def close(self) -> None:
        self._database.close()


def _sql_values(column: Any) -> Any:
    """Return values that SQLite compares as Spark compares these: 0.0 and -0.0 are equal."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _sql_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_uint64(kind):
        return column.cast(pa.string()).to_pylist()
    if pa.types.is_floating(kind):
        # SQLite takes NaN for null.
        return ["NaN" if it is not None and math.isnan(it) else it for it in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [None if it is None else repr(it) for it in column.to_pylist()]
    return column.to_pylist()
