"""Data guardrails as they are written; what they find is shown on real data elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from perago import (
    SparkWorkspace,
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.errors import GuardrailViolation
from perago.tasks.guardrails import check_spark


@pytest.mark.parametrize(
    "guardrail",
    [
        require_schema("clean", "id BIGINT"),
        require_schema("clean", {"id": "bigint"}, allow_extra=True),
        require_rows("clean", min=0),
        require_rows("clean", min=3, max=3),
        require_rows("clean", max=3, format="delta"),
        require_not_null("clean", "id"),
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


def test_data_that_is_not_there_is_a_violation_and_asks_spark_nothing() -> None:
    workspace = SparkWorkspace(None, "s3a://r/c", list_paths=lambda: ["cleaner/part-0"])
    with pytest.raises(GuardrailViolation, match="required data is missing: clean"):
        check_spark([require_rows("clean", min=0)], workspace)


class Frame:
    """A table in which the value 'private' occurs twice; every step gives the table again."""

    columns = ("user",)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: self

    def collect(self) -> list[tuple[str]]:
        return [("private",)]


class Space:
    """As much of a Spark workspace as a data guardrail needs."""

    def paths(self) -> list[str]:
        return ["t/part-0"]

    def read(self, _path: str, *, format: str) -> Frame:  # noqa: A002  Spark's name for it
        assert format == "parquet"
        return Frame()


@pytest.mark.parametrize("show_values", [False, True])
def test_a_message_has_values_of_rows_only_when_asked_for(show_values: bool) -> None:
    guardrail = require_unique("t", "user", show_values=show_values)
    with pytest.raises(GuardrailViolation) as caught:
        guardrail.check_data(Space())  # type: ignore[arg-type]
    assert ("private" in str(caught.value)) is show_values
    assert str(caught.value).startswith("t is not unique in 'user'")
