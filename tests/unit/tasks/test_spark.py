"""What the author of a Spark task gets, with something in the place of a session."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, call

import pytest

from perago import SparkWorkspace, WorkspaceSpec, require_file, require_rows, task
from perago.errors import DefinitionError, GuardrailViolation
from perago.tasks.definition import definition_of
from perago.tasks.guardrails import check_spark
from perago.tasks.taskdef import build_taskdef
from support.definitions import Params, Result, define, file_body, no_warning, refused

IN, OUT = "s3a://repo/0123/data", "s3a://repo/staging/data"


def spark_body(workspace: SparkWorkspace, params: Params) -> Result:
    return Result(count=workspace.read("raw").count())


def workspace(**changes: Any) -> SparkWorkspace:
    return SparkWorkspace(**{"spark": MagicMock(), "input_uri": IN, "output_uri": OUT, **changes})


def test_paths_are_below_the_input_commit_and_the_output_branch() -> None:
    space = workspace()
    assert (space.input(), space.output()) == (IN, OUT)
    assert space.input("raw/day=1") == f"{IN}/raw/day=1"
    assert space.input("raw/*.json") == f"{IN}/raw/*.json"
    assert space.output("clean") == f"{OUT}/clean"


def test_a_path_in_an_input_is_below_its_commit() -> None:
    space = workspace(sources={"dims": "s3a://dims/4567/tables", "all": "s3a://all/89"})
    assert space.input("shops", source="dims") == "s3a://dims/4567/tables/shops"
    assert space.input(source="all") == "s3a://all/89"
    with pytest.raises(ValueError, match="write a relative path"):
        space.input("../x", source="dims")
    with pytest.raises(ValueError, match=r"there is no input 'dim': .* has 'dims', 'all'"):
        space.input("x", source="dim")
    space.read("shops", source="dims", format="csv")
    loaded = [str(it.args[0]) for it in space.spark.read.load.mock_calls]
    assert loaded == ["s3a://dims/4567/tables/shops"]


@pytest.mark.parametrize(
    "path",
    [
        "/raw",
        "raw/",
        "../other",
        "a/../b",
        "a//b",
        ".",
        "a/./b",
        "{a,../b}",
        "a\\b",
        "a\nb",
        "a\x00",
    ],
)
def test_a_path_that_leaves_the_workspace_is_refused(path: str) -> None:
    space = workspace()
    for place in (space.input, space.output):
        with pytest.raises(ValueError, match="write a relative path"):
            place(path)


def test_a_workspace_without_output_says_why() -> None:
    with pytest.raises(RuntimeError, match="read_only=True"):
        workspace(output_uri=None).output("clean")


def test_read_and_write_are_short_forms_of_sparks_own() -> None:
    spark, frame = MagicMock(), MagicMock()
    space = workspace(spark=spark)
    assert space.spark is spark
    assert space.read("raw", format="csv", header=True) is spark.read.load.return_value
    assert spark.read.load.mock_calls == [call(f"{IN}/raw", format="csv", schema=None, header=True)]
    space.write(frame, "clean", mode="append", partition_by=["day"], compression="zstd")
    writer = frame.write.format.return_value.mode.return_value.options.return_value
    assert frame.write.format.mock_calls[0] == call("parquet")
    assert frame.write.format.return_value.mode.mock_calls[0] == call("append")
    assert writer.partitionBy.mock_calls[0] == call("day")
    assert writer.partitionBy.return_value.save.mock_calls == [call(f"{OUT}/clean")]


def test_a_listing_is_made_once_and_only_when_it_is_asked_for() -> None:
    listings: list[str] = []

    def list_paths() -> list[str]:
        listings.append("made")
        return ["raw/a"]

    space = workspace(list_paths=list_paths)
    assert listings == []
    assert list(space.paths()) == list(space.paths()) == ["raw/a"]
    assert listings == ["made"]
    with pytest.raises(RuntimeError, match="list_paths"):
        workspace().paths()


def test_listing_guardrails_look_at_the_listing_and_callables_get_the_workspace() -> None:
    seen: list[SparkWorkspace] = []
    space = workspace(list_paths=lambda: ["raw/a"])
    check_spark([require_file("raw/a"), seen.append], space, no_warning)
    assert seen == [space]
    with pytest.raises(GuardrailViolation, match="raw/b"):
        check_spark([require_file("raw/b")], space, no_warning)


def test_a_spark_workspace_makes_a_spark_task() -> None:
    spec = WorkspaceSpec(prefix="events", post=[require_rows("clean", min=1)])
    definition = define(spark_body, workspace=spec)
    assert definition.kind == "spark"
    assert definition.workspace is spec
    assert define(file_body).kind == "file"
    keys = build_taskdef(definition)["inputKeys"]
    assert keys == build_taskdef(define(file_body))["inputKeys"] == ["workspace", "params"]


def test_a_spark_task_has_the_whole_repository_by_default_and_comes_back_unchanged() -> None:
    assert task(name="count", owner_email="data@example.com")(spark_body) is spark_body
    found = definition_of(spark_body)
    assert found is not None
    assert found.workspace == WorkspaceSpec(prefix="/")


@pytest.mark.parametrize("side", ["pre", "post"])
def test_a_data_guardrail_that_only_spark_can_check_is_a_problem_on_a_file_task(side: str) -> None:
    spec = WorkspaceSpec(**{side: [require_rows("clean", min=1, format="delta")]})  # type: ignore[arg-type]
    assert define(spark_body, workspace=spec).workspace is spec
    text = refused(file_body, workspace=spec)
    assert f"WorkspaceSpec.{side}: 'clean': a file task reads parquet, csv, json" in text


def test_another_annotation_is_refused_with_both_that_work() -> None:
    def body(workspace: str, params: Params) -> Result:
        return Result(count=0)

    with pytest.raises(DefinitionError, match="annotated Path or SparkWorkspace"):
        define(body)
