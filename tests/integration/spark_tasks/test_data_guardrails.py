"""Data guardrails on real data: each that holds, and each that does not."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.connect.dataframe import DataFrame

from perago import (
    SparkWorkspace,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.errors import GuardrailViolation
from perago.protocol.last_seen import LastPublication
from perago.protocol.outcome import Completed, Failed
from perago.protocol.workspace import WorkspaceInput
from perago.spark.executions import ConnectExecution
from perago.spark.session import open_session
from perago.tasks.data import ROWS, DataGuardrail, Measure, TableSpec
from perago.tasks.guardrails import Guardrail, check_folder, check_spark
from perago.tasks.spark_table import SparkTable
from support.definitions import no_warning
from support.real_world import Servers
from support.spark_world import ALSO_ON_A_CLUSTER, EVENTS, RealSparkWorld, Rows, clean

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

HOLD: list[Guardrail] = [
    require_schema("raw", "user STRING, id LONG, amount BIGINT"),
    require_schema("raw", {"id": "bigint", "user": "string", "amount": "bigint"}),
    require_schema("raw", {"id": "bigint"}, allow_extra=True),
    require_rows("raw", min=len(EVENTS), max=len(EVENTS)),
    # The folders of its partitions are a column.
    require_schema("days", "id BIGINT, user STRING, amount BIGINT, day DATE, shop STRING"),
    require_unique("days", ["day", "shop", "id"]),
    require_rows("raw/part-0.parquet", min=1),
    require_not_null("raw", ["id", "user"]),
    require_not_null("gaps", "id"),
    require_unique("raw", "id"),
    require_unique("raw", ["user", "amount"]),
    require_rows("lines", min=2, max=2, format="text"),
    require_unique("odd", ["a b", "count"]),
]
BROKEN: list[tuple[Guardrail, str]] = [
    (require_schema("raw", {"id": "int"}, allow_extra=True), "id is bigint, not int"),
    (require_schema("raw", "id BIGINT, user STRING"), "amount is not in the schema"),
    (require_schema("raw", "id BIGINT, more DATE"), "more is missing"),
    (require_rows("raw", min=7), "raw has 6 rows, at least 7 required"),
    (require_rows("raw", max=5), "raw has 6 rows, at most 5 allowed"),
    (require_not_null("gaps", ["id", "user"]), "nulls in user: 2"),
    (require_not_null("raw", "nothing"), "raw has no column 'nothing'; it has 'id'"),
    (
        require_unique("raw", "user", show_values=True),
        "raw is not unique in 'user': 6 rows have 3 different values; for example: user='u",
    ),
    (require_unique("gaps", "user", show_values=True), "user=None"),
    (require_unique("odd", "count", show_values=True), "count=1"),
    (require_unique("days", ["day", "id"]), "18 rows have 12 different values"),
    (require_rows("missing", min=0), "required data is missing: missing"),
    (require_rows("ra", min=0), "required data is missing: ra"),
]


# A few rows each, some of them broken: the objects below data/, beside the tables.
TEXTS = {
    "lines/a.txt": "one\ntwo\n",
    "damaged/part 0.parquet": "private, and no Parquet at all",
    "nothing/_SUCCESS": "",
    "csv/a.csv": "id,user\n1,private\n2,\n",
    "short/a.csv": "id,user\n1,private\n2\n",
    "json/a.json": '{"id": 1, "user": "private"}\n{"id": 2}\n',
    "cut/a.json": '{"id": 1, "user": "private"}\n',
    "cut/b.json": '{"id": 2, "user": "private\n',
    "noise/a.json": "private\n",
    "empty/a.json": "",
}
# Whole numbers are counted in groups of 64 neighbours, so their edges and bounds are in here.
_WHOLE = [None, 0, 1, 1, 63, 64, 64, -1, -1, -64, -65, 127, -128]
_LONG = [*_WHOLE, None, 2**63 - 1, 2**63 - 1, -(2**63), -(2**63), 2**32, 2**32 + 64]
KEYS = pa.table(
    {
        "byte": pa.array([_WHOLE[n % len(_WHOLE)] for n in range(60)], pa.int8()),
        "short": pa.array([_WHOLE[n % 5] for n in range(60)], pa.int16()),
        "whole": pa.array([n // 2 for n in range(60)], pa.int32()),
        "long": pa.array([_LONG[n % len(_LONG)] for n in range(60)], pa.int64()),
        "text": pa.array([None if n % 7 == 0 else f"t{n % 4}" for n in range(60)]),
        "half": pa.array([None if n % 9 == 0 else n % 3 - 0.5 for n in range(60)]),
    }
)
GAPS: Rows = [{"id": 1, "user": "u"}, {"id": 2, "user": None}, {"id": 3, "user": None}]
ODD: Rows = [{"a b": 1, "count": 1}, {"a b": 2, "count": 1}]
CSV: dict[str, Any] = {"format": "csv", "options": {"header": True}}
JSON: dict[str, Any] = {"format": "json"}
UNREADABLE: list[tuple[Guardrail, str]] = [
    (require_not_null("damaged", "id"), "require_not_null: 'damaged/part 0.parquet' cannot be"),
    (require_schema("damaged", "id INT"), "require_schema: 'damaged/part 0.parquet' cannot be"),
    (require_rows("nothing", min=0), "require_rows: nothing cannot be read as parquet"),
    (require_rows("short", min=0, **CSV), "require_rows: 'short/a.csv' cannot be read as csv"),
    (require_not_null("short", "id", **CSV), "'short/a.csv' cannot be read as csv"),
    (require_rows("cut", min=0, **JSON), "require_rows: 'cut/b.json' cannot be read as json"),
    (require_unique("cut", "id", **JSON), "require_unique: 'cut/b.json' cannot be read as json"),
    (require_rows("noise", min=0, **JSON), "require_rows: 'noise/a.json' cannot be read as json"),
]
# The same on Spark and on files, word by word.
ALIKE: list[Guardrail] = [
    require_schema("raw", "id INT, more DATE"),
    require_unique("gaps", "user", show_values=True),
    require_not_null("gaps", ["id", "user"]),
    require_not_null("odd", "nothing"),
    require_not_null("csv", ["id", "user"], **CSV),
    require_schema("csv", "id INT", **CSV),
    require_rows("csv", max=2, format="csv"),
    require_not_null("json", ["id", "user"], **JSON),
    require_schema("json", "id STRING", **JSON),
    require_not_null("empty", "id", **JSON),
    require_rows("cut", min=0, **JSON),
    require_rows("damaged", min=0),
]


@pytest.fixture(scope="module")
def workspace(
    servers: Servers, spark_remote: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkWorkspace]:
    """One commit and one session for all cases."""
    world = RealSparkWorld(servers, tmp_path_factory.mktemp("root"), remote=spark_remote)
    world.put_table("main", "data/gaps/part-0.parquet", GAPS)
    world.put_table("main", "data/odd/part-0.parquet", ODD)
    for folder in ("day=2026-01-31/shop=a", "day=2026-01-31/shop=b", "day=2026-02-01/shop=a"):
        world.put_table("main", f"data/days/{folder}/part-0.parquet", EVENTS)
    # Two files, so that groups of two tasks are put together; none of the second is new.
    world.put_table("main", "data/keys/part-0.parquet", KEYS.to_pylist(), KEYS.schema)
    world.put_table("main", "data/keys/part-1.parquet", KEYS.to_pylist(), KEYS.schema)
    world.put_table("main", "data/no_rows/part-0.parquet", [], KEYS.schema)
    ref = world.commit("main", {f"data/{path}": text for path, text in TEXTS.items()})
    session = ConnectExecution(
        open_session(spark_remote, world.repository),
        servers.objects,
        world.repository,
        "data",
        LastPublication(
            world.control,
            servers.objects,
            WorkspaceInput.model_validate(world.workspace()),
            world.task_type,
            "data",
        ),
    )
    yield session.workspace(ref)
    session.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data as files."""
    root = tmp_path_factory.mktemp("folder")
    for path, text in TEXTS.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    for name, rows in {"raw": EVENTS, "gaps": GAPS, "odd": ODD}.items():
        (root / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), root / name / "part-0.parquet")
    return root


def said(check: Callable[[], None]) -> str:
    try:
        check()
    except GuardrailViolation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize("guardrail", HOLD, ids=repr)
def test_a_guardrail_that_holds_says_nothing(
    workspace: SparkWorkspace, guardrail: Guardrail
) -> None:
    check_spark([guardrail], workspace, no_warning)


@pytest.mark.parametrize(("guardrail", "text"), BROKEN, ids=lambda it: str(it)[:60])
def test_a_guardrail_that_is_broken_says_what_it_found(
    workspace: SparkWorkspace, guardrail: Guardrail, text: str
) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_spark([guardrail], workspace, no_warning)
    assert text in str(caught.value)


def test_no_value_of_a_row_is_in_a_message_unless_asked_for(workspace: SparkWorkspace) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_spark([require_unique("raw", "user")], workspace, no_warning)
    expected = "raw is not unique in 'user': 6 rows have 3 different values"
    assert str(caught.value) == expected


@pytest.mark.parametrize(("guardrail", "text"), UNREADABLE, ids=lambda it: str(it)[:60])
def test_data_that_cannot_be_read_is_a_violation_with_its_file_and_without_its_values(
    workspace: SparkWorkspace, guardrail: Guardrail, text: str
) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_spark([guardrail], workspace, no_warning)
    assert text in str(caught.value)
    assert "private" not in "".join(traceback.format_exception(caught.value))


def test_all_guardrails_of_a_table_are_one_query(
    workspace: SparkWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[object] = []
    collect = DataFrame.collect

    def note(frame: DataFrame) -> object:
        queries.append(frame)
        return collect(frame)

    monkeypatch.setattr(DataFrame, "collect", note)
    of_raw = [it for it in HOLD if isinstance(it, DataGuardrail) and it.path == "raw"]
    check_spark(of_raw, workspace, no_warning)
    assert (len(of_raw), len(queries)) == (7, 1)


@pytest.mark.parametrize("name", ["keys", "no_rows"])
def test_different_rows_are_counted_as_sets_count_them(
    workspace: SparkWorkspace, name: str
) -> None:
    rows = KEYS.to_pylist() * 2 if name == "keys" else []
    columns = KEYS.column_names
    sets: list[tuple[str, ...]] = [(one,) for one in columns]
    sets += [("long", "text"), ("text", "byte"), ("half", "text"), ("short", "whole", "half")]
    measures = [Measure("distinct", it) for it in sets] + [ROWS]
    measures += [Measure("nulls", (one,)) for one in columns]
    expected = {it: len({tuple(row[one] for one in it) for row in rows}) for it in sets}
    found = SparkTable(TableSpec(name, "parquet"), workspace).survey(measures).numbers
    assert {it.columns: n for it, n in found.items() if it.kind == "distinct"} == expected
    assert found[ROWS] == len(rows)
    assert {it.columns[0]: n for it, n in found.items() if it.kind == "nulls"} == {
        one: sum(row[one] is None for row in rows) for one in columns
    }


@pytest.mark.parametrize("guardrail", ALIKE, ids=lambda it: repr(it)[:80])
def test_spark_tasks_and_file_tasks_are_told_the_same(
    workspace: SparkWorkspace, folder: Path, guardrail: Guardrail
) -> None:
    on_spark = said(lambda: check_spark([guardrail], workspace, no_warning))
    on_files = said(lambda: check_folder([guardrail], folder, no_warning))
    # Why a file cannot be read is told in other words.
    assert on_files.partition(": it is")[0].partition(": a ")[0] == on_spark.partition(" (")[0]


@ALSO_ON_A_CLUSTER
def test_they_run_on_the_input_and_on_the_staged_commit(world: RealSparkWorld) -> None:
    world.start()
    pre = [require_rows("raw", min=6), require_not_null("raw", "id")]
    post = [require_schema("clean", "id BIGINT, amount BIGINT"), require_rows("clean", max=5)]
    outcome, _ = world.attempt(world.spark_job(clean, pre=pre, post=post))
    assert isinstance(outcome, Completed), outcome


@ALSO_ON_A_CLUSTER
def test_a_broken_one_after_the_body_publishes_nothing(world: RealSparkWorld) -> None:
    world.start()
    outcome, _ = world.attempt(world.spark_job(clean, post=[require_rows("clean", min=6)]))
    assert isinstance(outcome, Failed)
    assert outcome.reason == ("PostGuardrailViolation: clean has 5 rows, at least 6 required")
    world.assert_at(world.ref)
