"""Check the data of a workspace with guardrails, the same for Spark tasks and file tasks.

A guardrail says what is to be measured and judges the numbers. A table measures them, with Spark
(:mod:`perago.tasks.spark_table`) or from files (:mod:`perago.tasks.file_table`), all that its
guardrails need in one pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perago.errors import GuardrailViolation
from perago.tasks.spark import (
    DEFAULT_FORMAT,
    as_columns,
    quoted,
    source_name,
    workspace_path_problem,
)

Severity = Literal["fail", "warn"]
SEVERITIES = ("fail", "warn")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Which data a guardrail reads, and how. Guardrails with equal ones share a pass."""

    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()

    def problem(self) -> str | None:
        if problem := workspace_path_problem(self.path):
            return problem
        if not _is_text(self.format):
            return f"{self.path!r}: format must be the name of a Spark data source"
        options: object = self.options
        if not isinstance(options, tuple):
            return f"{self.path!r}: write the options as {{'header': True}}, not {options!r}"
        return None

    def has(self, path: str) -> bool:
        """Whether a path is the table, or below it."""
        return path == self.path or path.startswith(f"{self.path}/")


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a table: its rows, its rows with a null in a column, its different rows."""

    kind: Literal["rows", "nulls", "distinct"]
    columns: tuple[str, ...] = ()


ROWS = Measure("rows")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a table found: the types of its columns, and each measure of columns that it has."""

    types: Mapping[str, str]
    numbers: Mapping[Measure, int]


class Table(Protocol):
    """Data as one engine reads it; data that cannot be read is a ``GuardrailViolation``."""

    def survey(self, measures: Sequence[Measure]) -> Survey:
        """Take all measures, in one pass over the data."""

    def parse_schema(self, schema: str) -> Mapping[str, str]:
        """Parse Spark's DDL into types as ``survey`` names them."""

    def repeated(self, columns: Sequence[str], most: int) -> Sequence[Sequence[object]]:
        """Return values of columns that more than one row has."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What one guardrail found."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class DataGuardrail:
    """A guardrail that reads data."""

    table: TableSpec
    severity: Severity

    def measures(self) -> Iterable[Measure]:
        """The measures that ``judge`` needs."""
        return ()

    def judge(self, table: Table, survey: Survey) -> str | None:
        """Explain what is wrong with the data; None if nothing is."""
        raise NotImplementedError

    def problem(self) -> str | None:
        return self.table.problem() or severity_problem(self.severity) or self._own_problem()

    def _own_problem(self) -> str | None:
        return None

    @property
    def function(self) -> str:
        """The function that built this guardrail, for messages."""
        return _FUNCTIONS[type(self)]

    @property
    def path(self) -> str:
        return self.table.path


def check_table(table: Table, guardrails: Sequence[DataGuardrail]) -> list[Broken]:
    """Check all guardrails of one table in one pass, and return what is broken, in order."""
    measures = dict.fromkeys(measure for it in guardrails for measure in it.measures())
    try:
        survey = table.survey(list(measures))
    except GuardrailViolation as violation:
        # None of them could be checked; the strictest decides what that means.
        severity: Severity = "fail" if any(it.severity == "fail" for it in guardrails) else "warn"
        functions = ", ".join(dict.fromkeys(it.function for it in guardrails))
        return [Broken(severity, f"{functions}: {violation}")]
    judged = ((it, it.judge(table, survey)) for it in guardrails)
    return [Broken(it.severity, text) for it, text in judged if text is not None]


@dataclass(frozen=True, slots=True)
class RequireSchema(DataGuardrail):
    """Requires columns and their types."""

    schema: str
    allow_extra: bool = False

    def _own_problem(self) -> str | None:
        if not _is_text(self.schema):
            return (
                f"{self.path!r}: write the schema as Spark's DDL, 'id BIGINT, name STRING', "
                "or as {'id': 'bigint', 'name': 'string'}"
            )
        return None

    def judge(self, table: Table, survey: Survey) -> str | None:
        wanted, found = table.parse_schema(self.schema), survey.types
        wrong = [
            f"{name} is {found[name]}, not {kind}" if name in found else f"{name} is missing"
            for name, kind in wanted.items()
            if found.get(name) != kind
        ]
        if not self.allow_extra:
            wrong += [f"{name} is not in the schema" for name in found if name not in wanted]
        return f"{self.path} does not have its schema: {'; '.join(wrong)}" if wrong else None


@dataclass(frozen=True, slots=True)
class RequireRows(DataGuardrail):
    """Requires a number of rows within a range."""

    least: int | None
    most: int | None

    def _own_problem(self) -> str | None:
        bounds = [bound for bound in (self.least, self.most) if bound is not None]
        if not bounds or not all(map(_is_count, bounds)) or bounds != sorted(bounds):
            return (
                f"{self.path!r}: write min=, max= or both as whole numbers, 0 <= min <= max, "
                f"not {self.least!r} and {self.most!r}"
            )
        return None

    def measures(self) -> Iterable[Measure]:
        return (ROWS,)

    def judge(self, table: Table, survey: Survey) -> str | None:
        count = survey.numbers[ROWS]
        if self.least is not None and count < self.least:
            return f"{self.path} has {count} rows, at least {self.least} required"
        if self.most is not None and count > self.most:
            return f"{self.path} has {count} rows, at most {self.most} allowed"
        return None


@dataclass(frozen=True, slots=True)
class _ColumnsGuardrail(DataGuardrail):
    columns: tuple[str, ...]

    def _own_problem(self) -> str | None:
        names = self.columns
        if not names or not all(map(_is_text, names)):
            return f"{self.path!r}: write the names of one or more columns, not {names!r}"
        return None

    def judge(self, table: Table, survey: Survey) -> str | None:
        missing = [name for name in self.columns if name not in survey.types]
        if missing:
            return f"{self.path} has no column {_listed(missing)}; it has {_listed(survey.types)}"
        return self._judge_columns(table, survey)

    def _judge_columns(self, table: Table, survey: Survey) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RequireNotNull(_ColumnsGuardrail):
    """Forbids nulls in columns."""

    def measures(self) -> Iterable[Measure]:
        return [Measure("nulls", (name,)) for name in self.columns]

    def _judge_columns(self, table: Table, survey: Survey) -> str | None:
        counts = [survey.numbers[measure] for measure in self.measures()]
        wrong = [f"{name}: {n}" for name, n in zip(self.columns, counts, strict=True) if n]
        return f"{self.path} has rows with nulls in {', '.join(wrong)}" if wrong else None


@dataclass(frozen=True, slots=True)
class RequireUnique(_ColumnsGuardrail):
    """Requires unique values of columns together; nulls count as equal."""

    show_values: bool = False

    def measures(self) -> Iterable[Measure]:
        return (ROWS, Measure("distinct", self.columns))

    def _judge_columns(self, table: Table, survey: Survey) -> str | None:
        rows, distinct = (survey.numbers[measure] for measure in self.measures())
        if rows == distinct:
            return None
        text = (
            f"{self.path} is not unique in {_listed(self.columns)}: {rows} rows have {distinct} "
            "different values"
        )
        # The text goes to logs and to Conductor, and values may be private.
        if not self.show_values:
            return text
        examples = (
            ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, row, strict=True))
            for row in table.repeated(self.columns, _SHOWN)
        )
        return f"{text}; for example: {'; '.join(examples)}"


def require_schema(
    path: str,
    schema: str | Mapping[str, str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    options: Mapping[str, Any] | None = None,
    allow_extra: bool = False,
    severity: Severity = "fail",
) -> RequireSchema:
    """Require the data at ``path`` to have these columns and types, in any order.

    ``schema`` is Spark's DDL or a dict of names and types. Nullability is not compared, because
    Parquet does not keep it. ``allow_extra`` permits other columns.
    """
    text: Any = schema
    if isinstance(schema, Mapping):
        text = ", ".join(f"{quoted(str(name))} {kind}" for name, kind in schema.items())
    return RequireSchema(_table(path, format, options), severity, text, allow_extra)


def require_rows(
    path: str,
    *,
    min: int | None = None,  # noqa: A002  the usual names of bounds
    max: int | None = None,  # noqa: A002  the usual names of bounds
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    options: Mapping[str, Any] | None = None,
    severity: Severity = "fail",
) -> RequireRows:
    """Require at least ``min`` and at most ``max`` rows in the data at ``path``."""
    return RequireRows(_table(path, format, options), severity, min, max)


def require_not_null(
    path: str,
    columns: str | Sequence[str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    options: Mapping[str, Any] | None = None,
    severity: Severity = "fail",
) -> RequireNotNull:
    """Forbid nulls in ``columns`` of the data at ``path``."""
    return RequireNotNull(_table(path, format, options), severity, as_columns(columns))


def require_unique(
    path: str,
    columns: str | Sequence[str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    options: Mapping[str, Any] | None = None,
    show_values: bool = False,
    severity: Severity = "fail",
) -> RequireUnique:
    """Require the values of ``columns`` together to be unique in the data at ``path``.

    ``show_values`` puts examples of repeated values into the message, which logs and Conductor
    keep; by default no message has a value of a row.
    """
    table = _table(path, format, options)
    return RequireUnique(table, severity, as_columns(columns), show_values)


_FUNCTIONS: dict[type[DataGuardrail], str] = {
    RequireSchema: require_schema.__name__,
    RequireRows: require_rows.__name__,
    RequireNotNull: require_not_null.__name__,
    RequireUnique: require_unique.__name__,
}


def severity_problem(severity: object) -> str | None:
    """Explain what is wrong with a severity; None if nothing is."""
    if severity in SEVERITIES:
        return None
    return f"severity must be one of {', '.join(SEVERITIES)}, not {severity!r}"


def _table(path: str, source: str, options: Mapping[str, Any] | None) -> TableSpec:
    pairs: Any = () if options is None else options
    if isinstance(options, Mapping):
        pairs = tuple(sorted((str(key), _option(value)) for key, value in options.items()))
    return TableSpec(path, source_name(source) if _is_text(source) else source, pairs)


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
