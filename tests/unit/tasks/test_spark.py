"""What the author of a Spark task gets, with something in the place of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from perago import SparkWorkspace, WorkspaceSpec, require_file, require_rows, task
from perago.errors import DefinitionError, GuardrailViolation, UnsupportedOperationError
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


class Tables:
    """The files of one table, and what was asked about them."""

    def __init__(self, *, files: bool = True, loose: tuple[str, ...] = ()) -> None:
        self.files = files
        self.loose = loose
        self.replaced: list[str] = []

    def has_files(self, path: str) -> bool:
        return self.files

    def loose_files(self, path: str) -> tuple[str, ...]:
        return self.loose

    @contextmanager
    def replacing_partitions(self, path: str) -> Iterator[None]:
        yield
        self.replaced.append(path)


class Writer:
    """Stands for a frame and for its writer; keeps what is saved."""

    def __init__(self, *columns: str, saved: list[dict[str, Any]] | None = None) -> None:
        self.columns = list(columns)
        self.saved = [] if saved is None else saved
        self.now: dict[str, Any] = {}

    @property
    def write(self) -> Writer:
        self.now = {"columns": self.columns}
        return self

    def select(self, *columns: str) -> Writer:
        return Writer(*(name.strip("`") for name in columns), saved=self.saved)

    def limit(self, rows: int) -> Writer:
        return Writer(*self.columns, f"limit {rows}", saved=self.saved)

    def options(self, **options: Any) -> Writer:
        self.now["options"] = options
        return self

    def format(self, name: str) -> Writer:
        self.now["format"] = name
        return self

    def mode(self, mode: str) -> Writer:
        self.now["mode"] = mode
        return self

    def partitionBy(self, *columns: str) -> Writer:  # noqa: N802  pyspark's name
        self.now["by"] = columns
        return self

    def save(self, target: str) -> None:
        self.saved.append({**self.now, "target": target})


BY_DAY: dict[str, Any] = {"mode": "overwrite_partitions", "partition_by": ["day"]}


def test_partitions_are_overwritten_by_an_append_after_which_older_files_go() -> None:
    tables, frame = Tables(), Writer("id", "day")
    workspace(tables=tables).write(frame, "t", **BY_DAY, compression="zstd")
    [saved] = frame.saved
    assert (saved["mode"], saved["by"], saved["target"]) == ("append", ("day",), f"{OUT}/t")
    assert saved["options"] == {"compression": "zstd"}
    assert tables.replaced == ["t"]


@pytest.mark.parametrize("name", ["Parquet", "ORC", "Delta"])
def test_the_name_of_a_format_has_no_case_and_one_column_needs_no_list(name: str) -> None:
    frame = Writer("id", "day")
    space = workspace(tables=Tables(files=False))
    space.write(frame, "t", format=name, mode="overwrite_partitions", partition_by="day")
    assert frame.saved[0]["by"] == ("day",)
    # An empty file with the columns, which Delta has in its log.
    assert len(frame.saved) == (1 if name == "Delta" else 2)


def test_a_class_as_a_format_keeps_its_case() -> None:
    frame = Writer("id")
    workspace().write(frame, "t", format="com.example.Source")
    assert frame.saved[0]["format"] == "com.example.Source"


def test_a_delta_table_has_sparks_own_mode() -> None:
    frame = Writer("id", "day")
    workspace(tables=Tables(files=False)).write(frame, "t", format="delta", **BY_DAY)
    [saved] = frame.saved
    assert (saved["mode"], saved["options"]) == (
        "overwrite",
        {"partitionOverwriteMode": "dynamic"},
    )


def test_what_cannot_be_overwritten_by_partitions_is_refused() -> None:
    frame = Writer("id", "day")
    with pytest.raises(ValueError, match="needs partition_by"):
        workspace(tables=Tables()).write(frame, "t", mode="overwrite_partitions")
    with pytest.raises(UnsupportedOperationError, match="the format 'iceberg'"):
        workspace(tables=Tables()).write(frame, "t", format="iceberg", **BY_DAY)
    with pytest.raises(RuntimeError, match="without tables="):
        workspace().write(frame, "t", **BY_DAY)
    spark = MagicMock()
    spark.read.load.return_value.isEmpty.return_value = False
    space = workspace(spark=spark, tables=Tables(loose=("t/part-0",)))
    with pytest.raises(UnsupportedOperationError, match="'t' is not partitioned"):
        space.write(frame, "t", **BY_DAY)
    assert spark.read.load.mock_calls[0] == call([f"{OUT}/t/part-0"], format="parquet")
    assert frame.saved == []


@pytest.mark.parametrize("mode", ["overwrite", "append", "overwrite_partitions"])
def test_a_table_in_partitions_without_rows_gets_a_file_with_its_columns(mode: str) -> None:
    frame = Writer("DAY", "id")
    space = workspace(tables=Tables(files=False))
    space.write(frame, "t", mode=mode, partition_by=["day"])
    _, empty = frame.saved
    assert empty == {
        "columns": ["id", "day", "limit 0"],
        "format": "parquet",
        "mode": "append",
        "options": {},
        "target": f"{OUT}/t",
    }


def test_a_table_that_has_files_or_no_partitions_or_no_columns_gets_none() -> None:
    frame = Writer("id", "day")
    workspace(tables=Tables()).write(frame, "t", partition_by=["day"])
    empty = workspace(tables=Tables(files=False))
    empty.write(frame, "t")
    empty.write(frame, "t", format="text", partition_by=["day"])
    empty.write(frame, "t", format="delta", partition_by=["day"])
    assert len(frame.saved) == 4


def test_sql_names_data_by_its_path() -> None:
    space = workspace()
    assert space.sql_path("raw") == f"parquet.`{IN}/raw`"
    assert space.sql_path("t", format="delta", output=True) == f"delta.`{OUT}/t`"
    assert space.sql_path("a`b") == f"parquet.`{IN}/a``b`"
    with pytest.raises(ValueError, match="write a relative path"):
        space.sql_path("../other")


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
