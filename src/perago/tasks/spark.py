"""Give the body of a Spark task its workspace. This module does not import pyspark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perago.tasks.globs import relative_path_problem

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

DEFAULT_FORMAT = "parquet"
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
    ) -> None:
        self._spark = spark
        self._input = input_uri
        self._output = output_uri
        self._list_paths = list_paths
        self._sources = dict(sources or {})
        self._paths: tuple[str, ...] | None = None

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
        partition_by: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Write a DataFrame to ``output(path)``; by default, replace what the input has there."""
        target = self.output(path)
        writer = frame.write.format(format).mode(mode).options(**options)
        (writer.partitionBy(*partition_by) if partition_by else writer).save(target)

    def paths(self) -> Sequence[str]:
        """Return the relative paths of all objects in the commit to read; listed once."""
        if self._list_paths is None:
            raise RuntimeError("this workspace was created without list_paths=: pass it")
        if self._paths is None:
            self._paths = tuple(self._list_paths())
        return self._paths


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
