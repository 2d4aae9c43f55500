"""Check the data of a Spark workspace with guardrails; each runs as a Spark job.

Expressions are Spark SQL text, so that this module does not import pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.errors import GuardrailViolation
from perago.tasks.spark import DEFAULT_FORMAT, SparkWorkspace, quoted, workspace_path_problem

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _DataCheck:
    path: str
    format: str

    def check_data(self, workspace: SparkWorkspace) -> None:
        """Raise ``GuardrailViolation`` if the data violates the guardrail."""
        raise NotImplementedError

    def problem(self) -> str | None:
        if problem := workspace_path_problem(self.path):
            return problem
        if not _is_text(self.format):
            return f"{self.path!r}: format must be the name of a Spark data source"
        return self._own_problem()

    def _own_problem(self) -> str | None:
        return None

    def _load(self, workspace: SparkWorkspace) -> DataFrame:
        """Load the data; missing data is a ``GuardrailViolation``, not an error of Spark."""
        below = f"{self.path}/"
        if not any(it == self.path or it.startswith(below) for it in workspace.paths()):
            raise GuardrailViolation(f"required data is missing: {self.path}")
        return workspace.read(self.path, format=self.format)

    def _require_columns(self, frame: DataFrame, columns: Sequence[str]) -> None:
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise GuardrailViolation(
                f"{self.path} has no column {_listed(missing)}; it has {_listed(frame.columns)}"
            )


@dataclass(frozen=True, slots=True)
class RequireSchema(_DataCheck):
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

    def check_data(self, workspace: SparkWorkspace) -> None:
        frame = self._load(workspace)
        # Spark parses the DDL, so that every spelling of a type is understood.
        wanted = _types(workspace.spark.createDataFrame([], self.schema))
        found = _types(frame)
        wrong = [
            f"{name} is {found[name]}, not {kind}" if name in found else f"{name} is missing"
            for name, kind in wanted.items()
            if found.get(name) != kind
        ]
        if not self.allow_extra:
            wrong += [f"{name} is not in the schema" for name in found if name not in wanted]
        if wrong:
            raise GuardrailViolation(f"{self.path} does not have its schema: {'; '.join(wrong)}")


@dataclass(frozen=True, slots=True)
class RequireRows(_DataCheck):
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

    def check_data(self, workspace: SparkWorkspace) -> None:
        count = self._load(workspace).count()
        if self.least is not None and count < self.least:
            raise GuardrailViolation(
                f"{self.path} has {count} rows, at least {self.least} required"
            )
        if self.most is not None and count > self.most:
            raise GuardrailViolation(f"{self.path} has {count} rows, at most {self.most} allowed")


@dataclass(frozen=True, slots=True)
class _ColumnsCheck(_DataCheck):
    columns: tuple[str, ...]

    def _own_problem(self) -> str | None:
        names = self.columns
        if not names or not all(map(_is_text, names)):
            return f"{self.path!r}: write the names of one or more columns, not {names!r}"
        return None


@dataclass(frozen=True, slots=True)
class RequireNotNull(_ColumnsCheck):
    """Forbids nulls in columns."""

    def check_data(self, workspace: SparkWorkspace) -> None:
        frame = self._load(workspace)
        self._require_columns(frame, self.columns)
        sums = [f"count_if({quoted(name)} IS NULL)" for name in self.columns]
        [counts] = frame.selectExpr(*sums).collect()
        wrong = [f"{name}: {n}" for name, n in zip(self.columns, counts, strict=True) if n]
        if wrong:
            raise GuardrailViolation(f"{self.path} has rows with nulls in {', '.join(wrong)}")


@dataclass(frozen=True, slots=True)
class RequireUnique(_ColumnsCheck):
    """Requires unique values of columns together; nulls count as equal."""

    show_values: bool = False

    def check_data(self, workspace: SparkWorkspace) -> None:
        frame = self._load(workspace)
        self._require_columns(frame, self.columns)
        groups = frame.selectExpr(*map(quoted, self.columns)).groupBy(*map(quoted, self.columns))
        repeated = groups.agg({"*": "count"}).where("`count(1)` > 1")
        if examples := repeated.limit(_SHOWN).collect():
            message = f"{self.path} is not unique in {_listed(self.columns)}"
            # The message goes to logs and to Conductor, and values may be private.
            if self.show_values:
                shown = "; ".join(
                    ", ".join(f"{name}={row[i]!r}" for i, name in enumerate(self.columns))
                    for row in examples
                )
                message += f"; for example: {shown}"
            raise GuardrailViolation(message)


def require_schema(
    path: str,
    schema: str | Mapping[str, str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    allow_extra: bool = False,
) -> RequireSchema:
    """Require the data at ``path`` to have these columns and types, in any order.

    ``schema`` is Spark's DDL or a dict of names and types. Nullability is not compared, because
    Parquet does not keep it. ``allow_extra`` permits other columns.
    """
    text: Any = schema
    if isinstance(schema, Mapping):
        text = ", ".join(f"{quoted(str(name))} {kind}" for name, kind in schema.items())
    return RequireSchema(path, format, text, allow_extra)


def require_rows(
    path: str,
    *,
    min: int | None = None,  # noqa: A002  the usual names of bounds
    max: int | None = None,  # noqa: A002  the usual names of bounds
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
) -> RequireRows:
    """Require at least ``min`` and at most ``max`` rows in the data at ``path``."""
    return RequireRows(path, format, min, max)


def require_not_null(
    path: str,
    columns: str | Sequence[str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
) -> RequireNotNull:
    """Forbid nulls in ``columns`` of the data at ``path``."""
    return RequireNotNull(path, format, _as_columns(columns))


def require_unique(
    path: str,
    columns: str | Sequence[str],
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002  Spark's name for it
    show_values: bool = False,
) -> RequireUnique:
    """Require the values of ``columns`` together to be unique in the data at ``path``.

    ``show_values`` puts examples of repeated values into the message, which logs and Conductor
    keep; by default no message has a value of a row.
    """
    return RequireUnique(path, format, _as_columns(columns), show_values)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _as_columns(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
