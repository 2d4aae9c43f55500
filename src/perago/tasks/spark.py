"""Give the body of a Spark task its workspace. This module does not import pyspark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.errors import UnsupportedOperationError
from perago.tasks.changes import WorkspaceChanges, escape_glob, is_glob, new_data_files
from perago.tasks.globs import relative_path_problem
from perago.tasks.output_tables import OutputTables, folder_tables

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

DEFAULT_FORMAT = "parquet"
OVERWRITE_PARTITIONS = "overwrite_partitions"
# Spark writes these as files in folders of partitions, and an empty one has columns; text has none.
_WITH_COLUMNS = frozenset({"parquet", "orc", "json", "csv", "avro", "xml"})
_IN_FILES = _WITH_COLUMNS | {"text"}
# Their files say which columns they have; of the others Spark must read the rows to know.
WITH_SCHEMA = frozenset({"parquet", "orc", "avro"})
_DELTA = "delta"
# Spark's own way, which Delta follows by its log.
_DYNAMIC = {"partitionOverwriteMode": "dynamic"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
# Hadoop expands {a,b/c} in a path to read before it looks at the slashes.
_SEPARATORS = re.compile(r"[/{},]")


class SparkWorkspace:
    """A versioned workspace that Spark reads and writes in place.

    ``input()`` is the immutable commit that the task starts from. ``output()`` is the staging
    branch of this execution, which is published as one commit if the attempt succeeds. Spark
    addresses both as folders.

    In a guardrail the workspace is the commit under check (the input before the body, the staged
    commit after it), without an output. A unit test can use any folders that Spark can reach:
    ``SparkWorkspace(spark, "file:///tmp/in", "file:///tmp/out", sources={"dims": "file:///tmp/d"})``.
    """

    def __init__(
        self,
        spark: SparkSession,
        input_uri: str,
        output_uri: str | None = None,
        *,
        list_paths: Callable[[], Sequence[str]] | None = None,
        sources: Mapping[str, str] | None = None,
        tables: OutputTables | None = None,
        compare: Callable[[str | None], WorkspaceChanges] | None = None,
    ) -> None:
        self._spark = spark
        self._input = input_uri
        self._output = output_uri
        self._list_paths = list_paths
        self._sources = dict(sources or {})
        self._tables = tables or folder_tables(output_uri)
        self._compare = compare
        self._paths: tuple[str, ...] | None = None
        self._changes: dict[str | None, WorkspaceChanges] = {}

    @property
    def spark(self) -> SparkSession:
        """The Spark Connect session of this execution."""
        return self._spark

    def input(self, path: str = "", *, source: str | None = None) -> str:
        """Return the URI of ``path``, which may be a Hadoop glob, in the commit to read.

        ``source`` is the name of an input of the task, for a path in that one.
        """
        if source is None:
            return _join(self._input, path)
        if source not in self._sources:
            names = ", ".join(map(repr, self._sources)) or "none"
            raise ValueError(f"there is no input {source!r}: WorkspaceSpec.inputs has {names}")
        return _join(self._sources[source], path)

    def output(self, path: str = "") -> str:
        """Return the URI of ``path`` on the branch to write."""
        if self._output is None:
            raise RuntimeError(
                "this workspace has no output: a guardrail writes nothing, and neither does a "
                "task with WorkspaceSpec(read_only=True)"
            )
        return _join(self._output, path)

    def read(
        self,
        path: str = "",
        *,
        source: str | None = None,
        format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        """Load the data at ``input(path, source=source)`` as a DataFrame."""
        uri = self.input(path, source=source)
        return self._spark.read.load(uri, format=format, schema=schema, **options)

    def write(
        self,
        frame: DataFrame,
        path: str,
        *,
        format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
        mode: str = "overwrite",
        partition_by: str | Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Write a DataFrame to ``output(path)``; by default, replace what the input has there.

        ``mode="overwrite_partitions"`` replaces the partitions that the frame has rows for and
        keeps the others. A table in partitions that has no rows keeps its schema, in an empty file.
        """
        target = self.output(path)
        table = _Table(target, path, source_name(format), as_columns(partition_by), options)
        if mode == OVERWRITE_PARTITIONS:
            self._overwrite_partitions(frame, table)
        else:
            table.save(frame, mode)
        if table.partition_by and table.format in _WITH_COLUMNS and not self._has_files(path):
            table.save_empty(frame)

    def sql_path(
        self,
        path: str = "",
        *,
        format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
        output: bool = False,
    ) -> str:
        """Return the data at ``path`` as SQL names it: parquet.`s3a://…`.

        It is that of the input; with ``output=True`` that of the branch to write.
        """
        return f"{format}.{quoted(self.output(path) if output else self.input(path))}"

    def changes(self, *, since: str | None = None) -> WorkspaceChanges:
        """Return what others added, changed or removed since this task last published.

        Before its first publication, everything is added. ``since`` names a commit, a branch or a
        tag of the repository to compare with instead. Compared once for each.
        """
        if self._compare is None:
            raise RuntimeError("this workspace was created without compare=: pass it")
        if since == "":
            raise ValueError("since is empty: give a commit, a branch or a tag, or leave it out")
        if since not in self._changes:
            self._changes[since] = self._compare(since)
        return self._changes[since]

    def read_changes(
        self,
        path: str = "",
        *,
        since: str | None = None,
        format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        """Load the rows of the files of a table that were added or changed, as ``changes`` says.

        Without such files, the frame has no rows and the table's columns.
        """
        format = source_name(format)  # noqa: A001
        if format not in _IN_FILES:
            raise UnsupportedOperationError(
                f"read_changes is not supported for the format {format!r}",
                hint="Use a format of files (parquet, orc, json, csv, …); a Delta table has a "
                "change data feed of its own (the option readChangeFeed of workspace.read).",
            )
        if is_glob(path):
            raise ValueError(f"{path!r}: write the path of a table, without a pattern")
        table = self.input(path)
        changes = self.changes(since=since)
        files = new_data_files(changes, path)
        if not files:
            return self._read_nothing(path, format, schema, options)
        if changes.since is None:
            return self.read(path, format=format, schema=schema, **options)
        if schema is None and format in WITH_SCHEMA:
            schema = self.read(path, format=format, **options).schema
        if files != [path]:
            # Or the columns of partitions would be missing.
            options = {"basePath": table, **options}
        uris = [f"{self._input.removesuffix('/')}/{escape_glob(file)}" for file in files]
        return self._spark.read.load(uris, format=format, schema=schema, **options)

    def _read_nothing(
        self,
        path: str,
        format: str,  # noqa: A002  Spark's name for it
        schema: Any,
        options: Mapping[str, Any],
    ) -> DataFrame:
        """Return the columns of a table, which may not be there yet if they are given."""
        if schema is not None and not WorkspaceChanges(tuple(self.paths())).below(path):
            return self._spark.createDataFrame([], schema)
        return self.read(path, format=format, schema=schema, **options).limit(0)

    def _has_files(self, path: str) -> bool:
        # Where that is not known, a table is taken to have files, as Spark leaves it.
        return self._tables is None or self._tables.has_files(path)

    def _overwrite_partitions(self, frame: DataFrame, table: _Table) -> None:
        if not table.partition_by:
            raise ValueError(f"mode={OVERWRITE_PARTITIONS!r} needs partition_by=[…]")
        if table.format != _DELTA and table.format not in _IN_FILES:
            raise UnsupportedOperationError(
                f"mode={OVERWRITE_PARTITIONS!r} is not supported for the format {table.format!r}",
                hint="Use a format of files (parquet, orc, json, csv, …) or delta.",
            )
        if table.format == _DELTA:
            table.save(frame, "overwrite", _DYNAMIC)
            return
        if self._tables is None:
            raise RuntimeError("this workspace was created without tables=: pass it")
        self._require_partitions(self._tables, table)
        with self._tables.replacing_partitions(table.path):
            table.save(frame, "append")

    def _require_partitions(self, tables: OutputTables, table: _Table) -> None:
        """Spark reads no file beside folders of partitions: rows there would be gone."""
        if not (loose := tables.loose_files(table.path)):
            return
        files = [self.output(file) for file in loose]
        if not self._spark.read.load(files, format=table.format, **table.options).isEmpty():
            raise UnsupportedOperationError(
                f"the table {table.path!r} is not partitioned",
                hint=f"Write all of it once with partition_by={list(table.partition_by)}.",
            )

    def paths(self) -> Sequence[str]:
        """Return the relative paths of all objects in the commit to read; listed once."""
        if self._list_paths is None:
            raise RuntimeError("this workspace was created without list_paths=: pass it")
        if self._paths is None:
            self._paths = tuple(self._list_paths())
        return self._paths


@dataclass(frozen=True, slots=True)
class _Table:
    """What is written where, and how."""

    target: str
    path: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, Any]

    def save(self, frame: DataFrame, mode: str, more: Mapping[str, str] | None = None) -> None:
        options = {**self.options, **(more or {})}
        writer = frame.write.format(self.format).mode(mode).options(**options)
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        writer.save(self.target)

    def save_empty(self, frame: DataFrame) -> None:
        """Save the columns alone, in the order in which a table in partitions has them."""
        last = {name.lower() for name in self.partition_by}
        first = [name for name in frame.columns if name.lower() not in last]
        columns = frame.select(*map(quoted, [*first, *self.partition_by])).limit(0)
        columns.write.format(self.format).mode("append").options(**self.options).save(self.target)


def source_name(name: str) -> str:
    """Write the name of a data source as Spark knows it: short names have no case, classes do."""
    return name if "." in name else name.lower()


def as_columns(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns; a text is one of them, and not its letters."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def quoted(name: str) -> str:
    """Write a name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _join(root: str, path: str) -> str:
    if path == "":
        return root
    if problem := workspace_path_problem(path):
        raise ValueError(problem)
    return f"{root.removesuffix('/')}/{path}"


def workspace_path_problem(path: object) -> str | None:
    """Explain why ``path`` is not valid inside a workspace; None if it is."""
    if problem := relative_path_problem(path):
        return problem
    text = str(path)
    if ".." in _SEPARATORS.split(text) or _CONTROL.search(text):
        return f"{path!r}: write a relative path without '..', backslashes or control characters"
    return None
