"""Measure the data of a table with Spark: one query for all that its guardrails need.

Expressions are Spark SQL text, so that this module does not import pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perago.errors import GuardrailViolation
from perago.tasks.data import Measure, Survey, TableSpec
from perago.tasks.spark import WITH_SCHEMA, SparkWorkspace, quoted
from perago.text import quote_path

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame

# Formats of text, of which a record may be no record.
_TEXT_FORMATS = frozenset({"csv", "json"})
_CORRUPT_RECORD = "_corrupt_record"
_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint"})
# Conditions of Spark which say that data cannot be read, by their beginnings.
_UNREADABLE = (
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_SCHEMA_NOT_SET",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "FAILED_READ_FILE",
    "MALFORMED_RECORD_IN_PARSING",
    "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: \[([A-Z0-9_.]+)\]", re.MULTILINE)
# Causes of such an error that are no fault of the data.
_OUTAGE = re.compile(
    r"^\s*Caused by: (java\.net\.|java\.nio\.file\.AccessDenied|javax\.net\.ssl\."
    r"|org\.apache\.hadoop\.fs\.s3a\.AWS|software\.amazon\.awssdk\.|java\.lang\.OutOfMemoryError)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SparkTable:
    """The data at a path of a Spark workspace."""

    spec: TableSpec
    workspace: SparkWorkspace

    def survey(self, measures: Sequence[Measure]) -> Survey:
        if not any(map(self.spec.has, self.workspace.paths())):
            raise GuardrailViolation(f"required data is missing: {self.spec.path}")
        with self._reading():
            frame = self._load()
            types = _types(frame)
            known = [measure for measure in measures if set(measure.columns) <= types.keys()]
            numbers = _take(frame, types, known) if known else {}
        return Survey(types, numbers)

    def parse_schema(self, schema: str) -> Mapping[str, str]:
        # Spark parses the DDL, so that every spelling of a type is understood.
        return _types(self.workspace.spark.createDataFrame([], schema))

    def repeated(self, columns: Sequence[str], most: int) -> Sequence[Sequence[object]]:
        names = [quoted(name) for name in columns]
        with self._reading():
            groups = self._load().selectExpr(*names).groupBy(*names).agg({"*": "count"})
            found = groups.where("`count(1)` > 1").limit(most).collect()
        return [row[: len(columns)] for row in found]

    def _load(self) -> DataFrame:
        """Load the data; a record that is no record is an error unless the options say else."""
        spec, options = self.spec, dict(self.spec.options)
        frame = self.workspace.read(spec.path, format=spec.format, **options)
        if spec.format in WITH_SCHEMA:
            # Spark would look it up in the files once more for each query.
            schema = frame.schema
            return self.workspace.read(spec.path, format=spec.format, schema=schema, **options)
        if spec.format not in _TEXT_FORMATS or "mode" in map(str.lower, options):
            return frame
        # The schema is inferred first: an error of the inference does not name its file.
        corrupt = options.get("columnNameOfCorruptRecord", _CORRUPT_RECORD)
        schema = _without(frame.schema, corrupt)
        # With pruning, Spark would only look at the columns that are asked for.
        strict = {"mode": "FAILFAST", "columnPruning": "false", **options}
        return self.workspace.read(spec.path, format=spec.format, schema=schema, **strict)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what is wrong with data into a violation; every other error stays what it is."""
        try:
            yield
        except Exception as error:
            text = _full_text(error)
            condition = _condition(error, text)
            if condition is None or _OUTAGE.search(text):
                raise
            # Without the cause, whose text has values of rows.
            raise GuardrailViolation(
                f"{self._file_in(text)} cannot be read as {self.spec.format} ({condition})"
            ) from None

    def _file_in(self, text: str) -> str:
        """The file that an error of Spark names, or the table."""
        root, texts = self.workspace.input(), (text, unquote(text))
        files = filter(self.spec.has, self.workspace.paths())
        named = (file for file in files if any(f"{root}/{file}" in it for it in texts))
        file = max(named, key=len, default=None)
        return quote_path(file) if file else self.spec.path


def _take(
    frame: DataFrame, types: Mapping[str, str], measures: Sequence[Measure]
) -> dict[Measure, int]:
    """Take all measures in one query.

    It reads the table once, and once more for each further set of columns whose different rows
    are counted, because the groups of each set are others.
    """
    parts = [[measure] for measure in measures if measure.kind == "distinct"] or [[]]
    parts[0] += [measure for measure in measures if measure.kind != "distinct"]
    queries = [_query(frame, types, part, number) for number, part in enumerate(parts)]
    rows = reduce(lambda one, other: one.union(other), queries).collect()
    return {
        measure: found
        for number, numbers in rows
        for measure, found in zip(parts[number], numbers, strict=True)
    }


def _query(
    frame: DataFrame, types: Mapping[str, str], measures: Sequence[Measure], number: int
) -> DataFrame:
    """A row with the number of the part, and the numbers of its measures."""
    if measures[0].kind == "distinct":
        first, *others = measures
        frame = _grouped(frame, types, first.columns, others)
        counts = ["nvl(bit_count(`bit_or(bit)`), 1)"]
        counts += [f"`count(other{n})`" for n in range(len(others))]
        # Of a table without rows there is no group, and the sum of nothing is null.
        found = [f"nvl(sum({count}), 0)" for count in counts]
    else:
        found = [f"count({_counted(measure)})" for measure in measures]
    return frame.selectExpr(f"{number} AS part", f"array({', '.join(found)}) AS numbers")


def _grouped(
    frame: DataFrame, types: Mapping[str, str], columns: Sequence[str], others: Sequence[Measure]
) -> DataFrame:
    """Group a table so that each group knows how many different rows of columns it has.

    Where all rows differ, a group for each would cost more than most bodies. So if one of the
    columns is a whole number, a group has 64 neighbours of it, each as a bit of one word: of
    numbers that are dense, as keys mostly are, few groups are left. A group that has no bit has
    one value: the null, or that of columns without a whole number.
    """
    whole = next((name for name in columns if types[name] in _WHOLE_NUMBERS), None)
    keys = [quoted(name) for name in columns if name != whole]
    bit = "CAST(NULL AS BIGINT)"
    if whole is not None:
        value = f"CAST({quoted(whole)} AS BIGINT)"
        keys.append(f"shiftright({value}, 6)")
        bit = f"shiftleft(1L, CAST({value} & 63 AS INT))"
    names = [f"key{n}" for n in range(len(keys))]
    named = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    counted = [f"{_counted(measure)} AS other{n}" for n, measure in enumerate(others)]
    counts = {f"other{n}": "count" for n in range(len(others))}
    rows = frame.selectExpr(*named, f"{bit} AS bit", *counted)
    return rows.groupBy(*names).agg({"bit": "bit_or", **counts})


def _counted(measure: Measure) -> str:
    """An expression that has a value in each row that a measure counts, and else a null."""
    if measure.kind == "rows":
        return "1"
    [name] = measure.columns
    return f"CASE WHEN {quoted(name)} IS NULL THEN 1 END"


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _without(schema: Any, name: str) -> Any:
    others = [field for field in schema.fields if field.name != name]
    # Without a column, Spark would parse no record, and find none of them broken.
    return "value STRING" if schema.fields and not others else type(schema)(others)


def _full_text(error: Exception) -> str:
    """The message of an error, and what the server says about its causes."""
    trace = getattr(error, "getStackTrace", None)
    return f"{error}\n{(trace() if callable(trace) else None) or ''}"


def _condition(error: Exception, text: str) -> str | None:
    """Which condition of Spark says that data cannot be read; None if none does.

    An error of a task has the condition in its causes only.
    """
    get = getattr(error, "getCondition", None)
    own = str((get() if callable(get) else None) or "")
    named = [own, *_CAUSE.findall(text)]
    return next((name for name in named if name.startswith(_UNREADABLE)), None)
