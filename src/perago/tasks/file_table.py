"""Measure the data of a table in a folder, by pyarrow and in bounded memory.

Files are read batch by batch, once for all guardrails of the table.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from perago.errors import GuardrailViolation
from perago.tasks.data import Measure, Survey, TableSpec
from perago.tasks.ddl import parse_columns
from perago.tasks.tally import Tally
from perago.text import quote_path

# What a file that cannot be read may be; pyarrow's own messages have values of rows.
_REASONS = {
    "parquet": "it is damaged, or no Parquet file",
    "csv": "a row has more or fewer values than the first one, or is not UTF-8",
    "json": "a line is no JSON object or longer than 64 MiB, or a column has values of two types",
}
_OPTIONS = {"csv": ("header", "sep")}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_BATCH_ROWS = 16_384
_BLOCK_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 20
# A whole line is in memory, and a small file can be a very long one when it is decompressed.
_LONGEST_LINE = 64 << 20
# How Spark spells a null in the name of a partition's folder.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def file_table_problem(spec: TableSpec) -> str | None:
    """Explain why a file task cannot read such a table; None if it can."""
    if spec.format not in _REASONS:
        return (
            f"{spec.path!r}: a file task reads {', '.join(_REASONS)}, not {spec.format!r}: write "
            "(workspace: SparkWorkspace, …), or check the files in a function"
        )
    allowed = _OPTIONS.get(spec.format, ())
    if others := [name for name, _ in spec.options if name not in allowed]:
        return (
            f"{spec.path!r}: on a file task, {spec.format} has the options "
            f"{', '.join(allowed) or 'none'}, not {', '.join(others)}"
        )
    if len(dict(spec.options).get("sep", ",")) != 1:
        return f"{spec.path!r}: sep must be one character"
    return None


@dataclass(frozen=True, slots=True)
class FileTable:
    """The files of a table below a folder; ``paths`` lists all files of the folder."""

    spec: TableSpec
    folder: Path
    paths: Sequence[str]

    def survey(self, measures: Sequence[Measure]) -> Survey:
        tally = Tally([it.columns for it in measures if it.kind == "distinct"])
        with closing(tally):
            self._read_into(tally, {name for it in measures for name in it.columns})
            types = tally.types()
            known = [it for it in measures if set(it.columns) <= types.keys()]
            return Survey(types, {measure: tally.number(measure) for measure in known})

    def parse_schema(self, schema: str) -> Mapping[str, str]:
        return parse_columns(schema)

    def repeated(self, columns: Sequence[str], most: int) -> Sequence[Sequence[object]]:
        tally = Tally([tuple(columns)])
        with closing(tally):
            self._read_into(tally, set(columns))
            return tally.keys[tuple(columns)].repeated(most)

    def _read_into(self, tally: Tally, columns: set[str]) -> None:
        if not any(map(self.spec.has, self.paths)):
            raise GuardrailViolation(f"required data is missing: {self.spec.path}")
        for path in self.paths:
            if self._has(path):
                tally.begin_file(_partition(path.removeprefix(self.spec.path)))
                with self._reading(path):
                    self._read_file(self.folder / path, tally, columns)

    def _has(self, path: str) -> bool:
        """Whether a file holds rows: Spark leaves out names that begin with a dot or underscore."""
        if path == self.spec.path:
            return True
        below = path.removeprefix(f"{self.spec.path}/")
        hidden = any(name[0] in "._" and "=" not in name for name in below.split("/"))
        return below != path and not hidden

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """Turn what is wrong with a file into a violation; what the machine lacks stays an error.

        Errors of the operating system have a number, those of pyarrow about a file have none.
        """
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            # Without the cause, whose text has values.
            raise GuardrailViolation(
                f"{quote_path(path)} cannot be read as {self.spec.format}: "
                f"{_REASONS[self.spec.format]}"
            ) from None

    def _read_file(self, file: Path, tally: Tally, columns: set[str]) -> None:
        # A body can leave a named pipe, on which opening would wait for ever.
        if not stat.S_ISREG(file.lstat().st_mode):
            raise GuardrailViolation(f"{quote_path(file.name)} is not a regular file")
        match self.spec.format:
            case "parquet":
                _read_parquet(file, tally, columns)
            case "csv":
                _read_csv(file, tally, dict(self.spec.options))
            case _:
                _read_json(file, tally)


def _read_parquet(file: Path, tally: Tally, columns: set[str]) -> None:
    import pyarrow.parquet as pq

    # Without pre_buffer, which holds a whole row group in memory.
    with (
        file.open("rb") as raw,
        pq.ParquetFile(raw, pre_buffer=False, buffer_size=_BUFFER_BYTES) as parquet,
    ):
        tally.add_schema(parquet.schema_arrow)
        wanted = [name for name in parquet.schema_arrow.names if name in columns]
        if not wanted:
            tally.add_rows(parquet.metadata.num_rows)
            return
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
            tally.add(batch)


def _read_csv(file: Path, tally: Tally, options: Mapping[str, str]) -> None:
    """Read every column as text: so does Spark, unless it is told to infer."""
    import pyarrow as pa
    from pyarrow import csv

    header = options.get("header") == "true"
    read = csv.ReadOptions(block_size=_BLOCK_BYTES, autogenerate_column_names=not header)
    parse = csv.ParseOptions(delimiter=options.get("sep", ","))
    with _open_text(file) as stream:
        if not stream.read(1):
            return
    with _open_text(file) as stream:
        names = csv.open_csv(stream, read, parse).schema.names
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    columns = names if header else [f"_c{number}" for number in range(len(names))]
    tally.add_schema(pa.schema([(name, pa.string()) for name in columns]))
    with _open_text(file) as stream:
        for batch in csv.open_csv(stream, read, parse, convert):
            tally.add(batch.rename_columns(columns))


def _read_json(file: Path, tally: Tally) -> None:
    """Read whole lines, a block at a time: columns may first appear in a later block."""
    import pyarrow as pa
    from pyarrow import json

    with _open_text(file) as stream:
        for block in _line_blocks(stream):
            read = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
            table = json.read_json(pa.BufferReader(block), read)
            tally.add_schema(table.schema, inferred=True)
            for batch in table.to_batches(_BATCH_ROWS):
                tally.add(batch)


def _line_blocks(stream: Any) -> Iterator[bytes]:
    import pyarrow as pa

    pieces: list[bytes] = []
    while piece := stream.read(_BLOCK_BYTES):
        head, newline, tail = piece.rpartition(b"\n")
        if newline:
            yield from _unless_blank(b"".join([*pieces, head]))
            pieces = []
        pieces.append(tail)
        if sum(map(len, pieces)) > _LONGEST_LINE:
            raise pa.ArrowInvalid("a line is too long")
    yield from _unless_blank(b"".join(pieces))


def _unless_blank(block: bytes) -> Iterator[bytes]:
    if block.strip():
        yield block


@contextmanager
def _open_text(file: Path) -> Iterator[Any]:
    """Open a file, decompressed by the ending of its name as Spark does it."""
    import pyarrow as pa

    codec = _CODECS.get(file.suffix)
    # Not by its name: pyarrow opens no file whose name is not UTF-8.
    with file.open("rb") as raw, pa.PythonFile(raw, "r") as plain:
        if codec is None:
            yield plain
            return
        with pa.CompressedInputStream(plain, codec) as stream:
            yield stream


def _partition(path: str) -> dict[str, str | None]:
    """The columns that the folders of a file name, as in ``day=2026-01-31``."""
    named = (folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder)
    return {
        unquote(name): None if value == _NULL_PARTITION else unquote(value)
        for name, _, value in named
    }
