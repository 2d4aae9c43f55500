"""Data guardrails: how they are written, and how a table's are checked together."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from perago import (
    SparkWorkspace,
    WorkspaceSpec,
    require_file,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.errors import GuardrailViolation
from perago.tasks.data import DataGuardrail, Measure, Survey, check_table
from perago.tasks.guardrails import Guardrail, check_spark
from support.definitions import no_warning


@pytest.mark.parametrize(
    "guardrail",
    [
        require_schema("clean", "id BIGINT"),
        require_schema("clean", {"id": "bigint"}, allow_extra=True),
        require_rows("clean", min=0),
        require_rows("clean", min=3, max=3, severity="warn"),
        require_rows("clean", max=3, format="delta"),
        require_not_null("clean", "id", format="csv", options={"header": True, "sep": ";"}),
        require_unique("clean", ["id", "day"]),
    ],
    ids=repr,
)
def test_a_well_written_one_has_no_problem(guardrail: Any) -> None:
    assert list(WorkspaceSpec(pre=[guardrail], post=[guardrail]).problems()) == []


@pytest.mark.parametrize(
    ("guardrail", "advice"),
    [
        (require_rows("clean"), "write min=, max= or both"),
        (require_rows("clean", min=-1), "write min=, max= or both"),
        (require_rows("clean", min=4, max=3), "0 <= min <= max"),
        (require_rows("clean", min=1.5), "whole numbers"),  # type: ignore[arg-type]
        (require_rows("../clean", min=1), "write a relative path"),
        (require_rows("clean/", min=1), "write a relative path"),
        (require_rows("clean", min=1, format=""), "the name of a Spark data source"),
        (require_rows("clean", min=1, options="header"), "write the options as"),  # type: ignore[arg-type]
        (require_rows("clean", min=1, severity="error"), "severity must be one of fail, warn"),  # type: ignore[arg-type]
        (require_schema("clean", " "), "write the schema as Spark's DDL"),
        (require_schema("clean", {}), "write the schema as Spark's DDL"),
        (require_schema("clean", 7), "write the schema as Spark's DDL"),  # type: ignore[arg-type]
        (require_not_null("clean", []), "the names of one or more columns"),
        (require_unique("clean", ["id", ""]), "the names of one or more columns"),
        (require_rows, "require_rows needs its argument"),
        (require_unique, "require_unique needs its argument"),
    ],
    ids=lambda it: getattr(it, "__name__", None) or str(it),
)
def test_a_badly_written_one_says_what_to_write(guardrail: Any, advice: str) -> None:
    [problem] = WorkspaceSpec(post=[guardrail]).problems()
    assert problem.startswith("WorkspaceSpec.post: ")
    assert advice in problem


def test_a_dict_and_ddl_make_the_same_schema() -> None:
    quoted = require_schema("clean", {"a b": "string", "tick`s": "int"})
    assert quoted.schema == "`a b` string, `tick``s` int"


# All guardrails of a table


@dataclass
class Counted:
    """A table of four rows in which the value 'private' occurs twice; it notes each survey."""

    surveys: list[Sequence[Measure]] = field(default_factory=list)
    broken: str = ""

    def survey(self, measures: Sequence[Measure]) -> Survey:
        self.surveys.append(measures)
        if self.broken:
            raise GuardrailViolation(self.broken)
        known = [it for it in measures if set(it.columns) <= {"id", "user"}]
        numbers = {"rows": 4, "nulls": 0, "distinct": 3}
        return Survey({"id": "bigint", "user": "string"}, {it: numbers[it.kind] for it in known})

    def parse_schema(self, schema: str) -> dict[str, str]:
        return {"id": schema}

    def repeated(self, columns: Sequence[str], most: int) -> list[tuple[str]]:
        return [("private",)][:most]


def found(*guardrails: DataGuardrail, table: Counted | None = None) -> list[tuple[str, str]]:
    broken = check_table(table or Counted(), guardrails)
    return [(it.severity, it.text) for it in broken]


def test_all_guardrails_of_a_table_are_one_survey_of_different_measures() -> None:
    table = Counted()
    guardrails: list[DataGuardrail] = [
        require_rows("t", min=1),
        require_not_null("t", ["id", "user"]),
        require_unique("t", "id", severity="warn"),
        require_unique("t", ["id", "user"], severity="warn"),
        require_schema("t", "bigint", allow_extra=True),
    ]
    assert len(found(*guardrails, table=table)) == 2
    [measures] = table.surveys
    assert [(it.kind, it.columns) for it in measures] == [
        ("rows", ()),
        ("nulls", ("id",)),
        ("nulls", ("user",)),
        ("distinct", ("id",)),
        ("distinct", ("id", "user")),
    ]


def test_everything_that_is_broken_is_found_in_order_with_its_severity() -> None:
    assert found(
        require_rows("t", max=3, severity="warn"),
        require_not_null("t", ["id", "nothing"]),
        require_schema("t", "int"),
        require_rows("t", min=4, max=4),
    ) == [
        ("warn", "t has 4 rows, at most 3 allowed"),
        ("fail", "t has no column 'nothing'; it has 'id', 'user'"),
        ("fail", "t does not have its schema: id is bigint, not int; user is not in the schema"),
    ]


@pytest.mark.parametrize(("second", "severity"), [("fail", "fail"), ("warn", "warn")])
def test_data_that_cannot_be_read_breaks_all_and_is_as_bad_as_the_strictest(
    second: Any, severity: str
) -> None:
    assert found(
        require_rows("t", min=1, severity="warn"),
        require_rows("t", max=9, severity="warn"),
        require_not_null("t", "id", severity=second),
        table=Counted(broken="t/a cannot be read"),
    ) == [(severity, "require_rows, require_not_null: t/a cannot be read")]


@pytest.mark.parametrize("show_values", [False, True])
def test_a_message_has_values_of_rows_only_when_asked_for(show_values: bool) -> None:
    [(_, text)] = found(require_unique("t", "user", show_values=show_values))
    plain = "t is not unique in 'user': 4 rows have 3 different values"
    assert text == (f"{plain}; for example: user='private'" if show_values else plain)


# On Spark


class RefusedError(Exception):
    """As much of an error of Spark Connect as matters here."""

    def __init__(self, condition: str | None, text: str, trace: str = "") -> None:
        super().__init__(text)
        self._condition, self._trace = condition, trace

    def getCondition(self) -> str | None:  # noqa: N802  pyspark's name
        return self._condition

    def getStackTrace(self) -> str:  # noqa: N802  pyspark's name
        return self._trace


@dataclass
class Frame:
    """A frame with the columns of a data type; it notes each query."""

    names: Sequence[str]
    queries: list[Sequence[str]]
    # The numbers of each part, or what is raised.
    answers: Any

    @property
    def schema(self) -> Any:
        return Schema([Column(name) for name in self.names])

    def selectExpr(self, *expressions: str) -> Frame:  # noqa: N802  pyspark's name
        self.queries.append(expressions)
        return self

    def groupBy(self, *names: str) -> Frame:  # noqa: N802  pyspark's name
        return self

    def agg(self, functions: dict[str, str]) -> Frame:
        return self

    def union(self, other: Frame) -> Frame:
        return self

    def collect(self) -> Any:
        if isinstance(self.answers, Exception):
            raise self.answers
        return list(enumerate(self.answers))


class Schema:
    def __init__(self, fields: Sequence[Column]) -> None:
        self.fields = fields


@dataclass
class Column:
    name: str

    @property
    def dataType(self) -> Column:  # noqa: N802  pyspark's name
        return self

    def simpleString(self) -> str:  # noqa: N802  pyspark's name
        return "string"


@dataclass
class Space:
    """As much of a Spark workspace as a data guardrail needs."""

    answers: Any = ([2, 2],)
    names: Sequence[str] = ("user", "day")
    reads: list[dict[str, Any]] = field(default_factory=list)
    queries: list[Sequence[str]] = field(default_factory=list)

    def paths(self) -> list[str]:
        return ["t/part-0", "t/day=1/part", "t/day=1/part 0.parquet", "other/part-0"]

    def input(self) -> str:
        return "s3a://repo/0123/data"

    def read(self, path: str, **options: Any) -> Frame:
        self.reads.append({"path": path, **options})
        return Frame(self.names, self.queries, self.answers)


def check(space: Space, *guardrails: Guardrail) -> None:
    check_spark(guardrails, space, no_warning)  # type: ignore[arg-type]


def test_data_that_is_not_there_is_a_violation_and_asks_spark_nothing() -> None:
    workspace = SparkWorkspace(None, "s3a://r/c", list_paths=lambda: ["cleaner/part-0"])
    with pytest.raises(GuardrailViolation, match="required data is missing: clean"):
        check_spark([require_rows("clean", min=0)], workspace, no_warning)


def test_one_query_has_what_all_guardrails_of_a_table_need() -> None:
    space = Space(answers=([2, 2, 0], [2]))
    check(
        space,
        require_rows("t", min=1),
        require_file("t/part-0"),
        require_not_null("t", "user"),
        require_unique("t", ["user", "day"]),
        require_unique("t", "user"),
    )
    no_bit = "CAST(NULL AS BIGINT) AS bit"
    is_null = "CASE WHEN `user` IS NULL THEN 1 END"
    values, sums = "nvl(sum(nvl(bit_count(`bit_or(bit)`), 1)), 0)", "nvl(sum(`count(other{})`), 0)"
    # Groups and their sums, of each set of columns; the first has the other numbers too.
    assert space.queries == [
        ("`user` AS key0", "`day` AS key1", no_bit, "1 AS other0", f"{is_null} AS other1"),
        ("0 AS part", f"array({values}, {sums.format(0)}, {sums.format(1)}) AS numbers"),
        ("`user` AS key0", no_bit),
        ("1 AS part", f"array({values}) AS numbers"),
    ]


def test_tables_are_told_apart_by_path_format_and_options() -> None:
    space = Space(answers=([2],))
    check(
        space,
        require_rows("t", min=1),
        require_rows("other", min=1),
        require_rows("t", min=1, format="orc"),
        require_rows("t", min=1, options={"mergeSchema": True}),
    )
    # Each once for its schema, and once with it.
    schemas = [read.pop("schema", None) is not None for read in space.reads]
    assert schemas == [False, True] * 4
    assert space.reads[::2] == space.reads[1::2]
    assert space.reads[::2] == [
        {"path": "t", "format": "parquet"},
        {"path": "other", "format": "parquet"},
        {"path": "t", "format": "orc"},
        {"path": "t", "format": "parquet", "mergeSchema": "true"},
    ]


def test_the_name_of_a_format_has_no_case_as_in_spark() -> None:
    space = Space(answers=([2],), names=["id"])
    check(space, require_rows("t", min=1, format="JSON"), require_rows("t", max=9, format="json"))
    assert [(read["format"], read.get("mode")) for read in space.reads] == [
        ("json", None),
        ("json", "FAILFAST"),
    ]
    own = Space(answers=([2],), names=["id"])
    check(own, require_rows("t", min=1, format="csv", options={"MODE": "PERMISSIVE"}))
    assert own.reads == [{"path": "t", "format": "csv", "MODE": "PERMISSIVE"}]


@pytest.mark.parametrize("source", ["json", "csv"])
def test_text_is_read_with_its_inferred_schema_and_no_broken_record_passes(source: str) -> None:
    space = Space(answers=([2],), names=["id", "_corrupt_record"])
    check(space, require_rows("t", min=1, format=source, options={"multiLine": True}))
    lenient, strict = space.reads
    assert lenient == {"path": "t", "format": source, "multiLine": "true"}
    assert [field.name for field in strict.pop("schema").fields] == ["id"]
    assert strict == {**lenient, "mode": "FAILFAST", "columnPruning": "false"}


def test_text_of_which_no_record_is_one_is_read_all_the_same() -> None:
    space = Space(answers=([2],), names=["_corrupt_record"])
    check(space, require_rows("t", min=1, format="json"))
    assert space.reads[1]["schema"] == "value STRING"


def test_a_mode_that_the_author_chose_is_used() -> None:
    space = Space(answers=([2],))
    check(space, require_rows("t", min=1, format="csv", options={"mode": "PERMISSIVE"}))
    assert space.reads == [{"path": "t", "format": "csv", "mode": "PERMISSIVE"}]


FILE = "s3a://repo/0123/data/t/day=1/part%200.parquet"


@pytest.mark.parametrize(
    ("condition", "text", "said"),
    [
        (
            "FAILED_READ_FILE.NO_HINT",
            f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {FILE}. private",
            "'t/day=1/part 0.parquet' cannot be read as parquet (FAILED_READ_FILE.NO_HINT)",
        ),
        (
            None,
            "Job aborted due to stage failure: private\n"
            "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER]"
            f" Encountered error while reading file {FILE.replace('%20', ' ')}. Could not",
            "'t/day=1/part 0.parquet' cannot be read as parquet "
            "(FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER)",
        ),
        (
            "UNABLE_TO_INFER_SCHEMA",
            "Unable to infer schema for Parquet.",
            "t cannot be read as parquet (UNABLE_TO_INFER_SCHEMA)",
        ),
    ],
)
def test_data_that_spark_cannot_read_is_a_violation_with_its_file_and_without_its_values(
    condition: str | None, text: str, said: str
) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check(Space(RefusedError(condition, text)), require_rows("t", min=1))
    assert str(caught.value) == f"require_rows: {said}"
    assert "private" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("UNRESOLVED_COLUMN", "no such column"),
        RefusedError("DELTA_CONFIGURE_SPARK_SESSION", "set the extension"),
        RefusedError(None, "the server went away"),
        RefusedError(
            "FAILED_READ_FILE.NO_HINT", FILE, "Caused by: java.net.ConnectException: refused"
        ),
        ConnectionError("the server went away"),
    ],
    ids=str,
)
def test_an_error_that_says_nothing_about_the_data_is_no_violation(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        check(Space(error), require_rows("t", min=1))
    assert caught.value is error
