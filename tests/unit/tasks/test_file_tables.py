"""Data guardrails of file tasks, on real Parquet, CSV and JSON files."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perago import (
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.errors import GuardrailViolation
from perago.tasks import file_table, tally
from perago.tasks.ddl import parse_columns
from perago.tasks.guardrails import Guardrail, check_folder
from support.definitions import define, file_body, no_warning, refused

HEADER = {"header": True}


def put(folder: Path, path: str, content: bytes | str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def put_table(folder: Path, path: str, columns: Mapping[str, Sequence[Any]] | pa.Table) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as content:
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), content)


def put_lines(folder: Path, path: str, rows: Sequence[Any]) -> None:
    put(folder, path, "".join(json.dumps(row) + "\n" for row in rows))


def broken(folder: Path, *guardrails: Guardrail) -> str:
    """What the guardrails say; empty if they hold."""
    try:
        check_folder(guardrails, folder, no_warning)
    except GuardrailViolation as violation:
        said, trace = str(violation), "".join(traceback.format_exception(violation))
    else:
        return ""
    assert "private" not in trace
    return said


@pytest.fixture(params=["parquet", "csv", "json"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The same three rows in two files of each format; the arguments that read them."""
    source: str = request.param
    parts: list[list[dict[str, Any]]] = [
        [{"id": "1", "user": "private"}, {"id": "2", "user": None}],
        [{"id": "3", "user": "private"}],
    ]
    for number, rows in enumerate(parts):
        path = f"t/part-{number}.{source}"
        if source == "parquet":
            put_table(tmp_path, path, pa.Table.from_pylist(rows))
        elif source == "json":
            put_lines(tmp_path, path, rows)
        else:
            lines = [f"{row['id']},{row['user'] or ''}\n" for row in rows]
            put(tmp_path, path, "".join(["id,user\n", *lines]))
    put(tmp_path, "t/_SUCCESS", "not a table")
    put(tmp_path, "t/.hidden/x", "nor this")
    return {"format": source, "options": HEADER if source == "csv" else None}


def test_guardrails_that_hold_say_nothing(table: dict[str, Any], tmp_path: Path) -> None:
    holding = [
        require_rows("t", min=3, max=3, **table),
        require_not_null("t", "id", **table),
        require_unique("t", "id", **table),
        require_unique("t", ["id", "user"], **table),
        require_schema("t", "user STRING, id STRING", **table),
        require_schema("t", "id STRING", allow_extra=True, **table),
    ]
    assert broken(tmp_path, *holding) == ""


def test_all_that_are_broken_say_what_they_found(table: dict[str, Any], tmp_path: Path) -> None:
    said = broken(
        tmp_path,
        require_rows("t", min=4, **table),
        require_not_null("t", ["id", "user"], **table),
        require_unique("t", "user", **table),
        require_schema("t", {"id": "bigint"}, **table),
        require_unique("t", "nothing", **table),
    )
    assert said.split("; ", 3) == [
        "t has 3 rows, at least 4 required",
        "t has rows with nulls in user: 1",
        "t is not unique in 'user': 3 rows have 2 different values",
        "t does not have its schema: id is string, not bigint; user is not in the schema; "
        "t has no column 'nothing'; it has 'id', 'user'",
    ]


def test_repeated_values_are_shown_when_asked_for(table: dict[str, Any], tmp_path: Path) -> None:
    guardrail = require_unique("t", "user", show_values=True, **table)
    with pytest.raises(GuardrailViolation, match=r"for example: user='private'$"):
        check_folder([guardrail], tmp_path, no_warning)


def test_files_are_read_once_for_all_guardrails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_table(tmp_path, "t/a", {"id": [1, 2]})
    read: list[Path] = []
    original = file_table._read_parquet

    def note(file: Path, *given: Any) -> None:
        read.append(file)
        original(file, *given)

    monkeypatch.setattr(file_table, "_read_parquet", note)
    check_folder(
        [
            require_schema("t", "id LONG"),
            require_rows("t", min=2),
            require_not_null("t", "id"),
            require_unique("t", "id"),
        ],
        tmp_path,
        no_warning,
    )
    assert len(read) == 1


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("t/a.parquet", "private, and no Parquet", "it is damaged, or no Parquet file"),
        ("t/a.parquet", "", "it is damaged, or no Parquet file"),
        ("t/a.csv", "id,user\n1,private\n2\n", "a row has more or fewer values"),
        ("t/a.csv", b"id,user\n1,private\xff\n", "or is not UTF-8"),
        ("t/a.json", '{"user": "private"}\n{"user": "private\n', "a line is no JSON object"),
        ("t/a.json", '["private"]\n', "a line is no JSON object"),
        ("t/a.json", '{"user": "private"}\n{"user": 1}\n', "a column has values of two types"),
        ("t/a.json.gz", b"private", "a line is no JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_violation_with_its_name_and_without_its_values(
    tmp_path: Path, path: str, content: Any, said: str
) -> None:
    source = path.split(".")[1]
    put(tmp_path, path, content)
    found = broken(tmp_path, require_rows("t", min=0, format=source))
    assert found.startswith(f"require_rows: '{path}' cannot be read as {source}: ")
    assert said in found


def test_a_line_without_an_end_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file can be a very long line when it is decompressed."""
    monkeypatch.setattr(file_table, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(file_table, "_LONGEST_LINE", 1000, raising=False)
    fits = json.dumps({"user": "x" * 900})
    put(tmp_path, "t/a.json.gz", gzip.compress(f"{fits}\n{fits}\n".encode()))
    check_folder([require_rows("t", min=2, format="json")], tmp_path, no_warning)
    put(tmp_path, "t/b.json.gz", gzip.compress(json.dumps({"user": "x" * 9000}).encode()))
    found = broken(tmp_path, require_rows("t", min=0, format="json"))
    assert "'t/b.json.gz' cannot be read as json: a line is no JSON object" in found
    assert "longer than" in found


def test_damage_in_the_middle_of_a_file_is_found(tmp_path: Path) -> None:
    put_table(tmp_path, "t/a.parquet", {"id": list(range(1000))})
    content = bytearray((tmp_path / "t/a.parquet").read_bytes())
    content[8:200] = bytes(192)
    put(tmp_path, "t/a.parquet", bytes(content))
    said = broken(tmp_path, require_not_null("t", "id"))
    assert said.startswith("require_not_null: 't/a.parquet' cannot be read as parquet")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, make: Any) -> None:
    (tmp_path / "t").mkdir()
    make(tmp_path / "t" / "a.parquet")
    said = broken(tmp_path, require_rows("t", min=0))
    assert said == "require_rows: 'a.parquet' is not a regular file"


def test_a_file_that_the_machine_cannot_read_is_no_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_table(tmp_path, "t/a.parquet", {"id": [1]})

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_table, "_read_parquet", fail)
    with pytest.raises(OSError, match="Input/output error"):
        check_folder([require_rows("t", min=0)], tmp_path, no_warning)


def test_data_that_is_not_there_is_a_violation(tmp_path: Path) -> None:
    put_table(tmp_path, "tt/a.parquet", {"id": [1]})
    said = broken(tmp_path, require_rows("t", min=0), require_rows("tt", min=1))
    assert said == "require_rows: required data is missing: t"


def test_a_table_can_be_one_file_and_its_name_need_not_be_utf_8(tmp_path: Path) -> None:
    put_table(tmp_path, "t.parquet", {"id": [1]})
    put_table(tmp_path, "odd/caf\udce9.parquet", {"id": [1]})
    assert broken(tmp_path, require_rows("t.parquet", min=1), require_rows("odd", min=1)) == ""


def test_without_a_header_columns_are_numbered_as_spark_does(tmp_path: Path) -> None:
    put(tmp_path, "t/a.csv", 'a;"";c\n1;;3\n')
    put(tmp_path, "t/empty.csv", "")
    table: dict[str, Any] = {"format": "csv", "options": {"sep": ";"}}
    said = broken(
        tmp_path,
        require_rows("t", min=2, max=2, **table),
        require_schema("t", {"_c0": "string", "_c1": "string", "_c2": "string"}, **table),
        require_not_null("t", ["_c0", "_c1"], **table),
    )
    # An empty text in quotes is a text.
    assert said == "t has rows with nulls in _c1: 1"


def test_a_compressed_file_is_read_by_its_ending(tmp_path: Path) -> None:
    put(tmp_path, "t/a.json.gz", gzip.compress(b'{"id": 1}\n\n{"id": 2}'))
    put(tmp_path, "c/a.csv.gz", gzip.compress(b"id\n1\n2\n"))
    assert (
        broken(
            tmp_path,
            require_unique("t", "id", format="json"),
            require_rows("t", min=2, max=2, format="json"),
            require_rows("c", min=2, max=2, format="csv", options=HEADER),
        )
        == ""
    )


def test_partition_folders_are_columns(tmp_path: Path) -> None:
    put_table(tmp_path, "t/day=2026-01-01/n=1/a.parquet", {"id": [1, 2]})
    put_table(tmp_path, "t/day=2026-01-02/n=2/a.parquet", {"id": [1, 2]})
    put_table(tmp_path, "t/day=__HIVE_DEFAULT_PARTITION__/n=3/a.parquet", {"id": [1]})
    put_table(tmp_path, "u/shop=a%20b/big=4000000000/rate=1.5/a.parquet", {"id": [1]})
    assert (
        broken(
            tmp_path,
            require_schema("t", "id BIGINT, day DATE, n INT"),
            require_unique("t", ["day", "id"]),
            require_unique("t", ["n", "id"]),
            require_schema("u", "id BIGINT, shop STRING, big BIGINT, rate DOUBLE"),
        )
        == ""
    )
    said = broken(tmp_path, require_unique("t", "n"), require_not_null("t", "day"))
    assert said == (
        "t is not unique in 'n': 5 rows have 3 different values; t has rows with nulls in day: 1"
    )


def test_a_column_that_a_file_lacks_is_null_in_it(tmp_path: Path) -> None:
    put_table(tmp_path, "t/a.parquet", {"id": [1], "more": [1]})
    put_table(tmp_path, "t/b.parquet", {"id": [2, 3]})
    said = broken(tmp_path, require_not_null("t", "more"), require_unique("t", "more"))
    assert said == (
        "t has rows with nulls in more: 2; "
        "t is not unique in 'more': 3 rows have 2 different values"
    )


def test_a_column_whose_type_differs_between_files_has_both(tmp_path: Path) -> None:
    put_table(tmp_path, "t/a.parquet", {"id": [1]})
    put_table(tmp_path, "t/b.parquet", {"id": ["x"]})
    said = broken(tmp_path, require_schema("t", "id BIGINT"))
    assert said == "t does not have its schema: id is bigint or string, not bigint"


def test_json_is_read_in_blocks_and_its_types_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_table, "_BLOCK_BYTES", 40)
    put_lines(
        tmp_path,
        "t/a.json",
        [
            {"n": 1, "at": "2026-01-01T00:00:00", "s": {"b": 1, "a": "x"}, "none": None},
            {"n": 1.5, "at": "soon", "s": {"b": 2.5}, "none": None, "l": [1]},
            {"n": 2, "at": "x" * 200},
        ],
    )
    schema = "n DOUBLE, at STRING, s STRUCT<a: STRING, b: DOUBLE>, none STRING, l ARRAY<LONG>"
    assert broken(tmp_path, require_schema("t", schema, format="json")) == ""
    said = broken(tmp_path, require_not_null("t", ["n", "s", "l"], format="json"))
    assert said == "t has rows with nulls in s: 1, l: 2"


NAN = float("nan")
DAY = datetime.date(2026, 1, 31)
UNIQUE_AND_REPEATED: list[tuple[list[Any], list[Any], pa.DataType]] = [
    ([1, 2, None], [1, None, None], pa.int64()),
    ([2**63, 2**64 - 1], [2**63, 2**63], pa.uint64()),
    ([0.5, NAN, None], [NAN, NAN], pa.float64()),
    ([0.5], [0.0, -0.0], pa.float32()),
    (["a", "A", "", None], ["a", "a"], pa.string()),
    ([b"a", b"b"], [b"a", b"a"], pa.binary()),
    ([True, False], [True, True], pa.bool_()),
    ([DAY, None], [DAY, DAY], pa.date32()),
    ([1, 2], [1, 1], pa.timestamp("us", tz="Europe/Berlin")),
    ([1, 2], [1, 1], pa.timestamp("ns")),
    ([decimal.Decimal("1.50")], [decimal.Decimal("1.50")] * 2, pa.decimal128(10, 2)),
    ([[1], [1, 2], None], [[1], [1]], pa.list_(pa.int32())),
    ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 1}], pa.struct([("a", pa.int32())])),
    (["a", "b"], ["b", "b"], pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize(
    ("unique", "repeated", "kind"), UNIQUE_AND_REPEATED, ids=lambda it: str(it)[:20]
)
def test_values_of_every_type_are_compared(
    tmp_path: Path, unique: list[Any], repeated: list[Any], kind: pa.DataType
) -> None:
    put_table(tmp_path, "t/a", pa.table({"v": pa.array(unique, kind)}))
    put_table(tmp_path, "r/a", pa.table({"v": pa.array(repeated, kind)}))
    assert broken(tmp_path, require_unique("t", "v")) == ""
    assert "r is not unique in 'v'" in broken(tmp_path, require_unique("r", "v"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int8(), "TINYINT"),
        (pa.uint8(), "SMALLINT"),
        (pa.uint32(), "BIGINT"),
        (pa.float32(), "REAL"),
        (pa.large_string(), "STRING"),
        (pa.binary(), "BINARY"),
        (pa.bool_(), "BOOLEAN"),
        (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.date32(), "DATE"),
        (pa.decimal128(12, 2), "NUMERIC(12, 2)"),
        (pa.map_(pa.string(), pa.int32()), "MAP<STRING, INT>"),
        (pa.list_(pa.struct([("a", pa.int64())])), "ARRAY<STRUCT<a: LONG NOT NULL COMMENT 'x'>>"),
        (pa.dictionary(pa.int8(), pa.string()), "VARCHAR(7)"),
        (pa.null(), "VOID"),
    ],
    ids=str,
)
def test_types_are_named_as_spark_names_them(tmp_path: Path, kind: pa.DataType, name: str) -> None:
    put_table(tmp_path, "t/a", pa.table({"v": pa.array([], kind)}))
    assert broken(tmp_path, require_schema("t", {"v": name})) == ""


def test_a_time_of_day_has_no_type_of_spark_and_never_fits(tmp_path: Path) -> None:
    put_table(tmp_path, "t/a", pa.table({"v": pa.array([], pa.time64("us"))}))
    assert "v is time64[us], not string" in broken(tmp_path, require_schema("t", "v STRING"))


def test_unique_values_that_do_not_fit_into_memory_are_compared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "_CACHE_KIB", 16)
    count = 40_000
    put_table(tmp_path, "t/a", {"id": range(count), "half": [n // 2 for n in range(count)]})
    said = broken(tmp_path, require_unique("t", "id"), require_unique("t", "half"))
    assert said == f"t is not unique in 'half': {count} rows have {count // 2} different values"


# As they are written


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id BIGINT", {"id": "bigint"}),
        ("`a b` int, `tick``s` STRING NOT NULL", {"a b": "int", "tick`s": "string"}),
        ("d DECIMAL, e dec(5)", {"d": "decimal(10,0)", "e": "decimal(5,0)"}),
        (
            "x array<map<string,struct<y:int,z:date>>>",
            {"x": "array<map<string,struct<y:int,z:date>>>"},
        ),
        ("a INT COMMENT 'it\\'s', b BYTE", {"a": "int", "b": "tinyint"}),
    ],
)
def test_ddl_is_parsed(text: str, columns: dict[str, str]) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "id",
            "id BIGINT,",
            "id BIGINT name STRING",
            "id VARIANT",
            "x array<int",
            "x map<int>",
        ),
        *("x decimal(a)", "x int NOT", "id; BIGINT", ", id INT", "`id INT"),
    ],
)
def test_ddl_that_cannot_be_parsed_is_a_definition_problem_of_a_file_task(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_columns(text)
    if text:
        spec = WorkspaceSpec(pre=[require_schema("t", text)])
        assert "the schema cannot be read" in refused(file_body, workspace=spec)


@pytest.mark.parametrize(
    ("guardrail", "advice"),
    [
        (require_rows("t", min=1, format="orc"), "a file task reads parquet, csv, json, not 'orc'"),
        (
            require_rows("t", min=1, format="csv", options={"inferSchema": True}),
            "csv has the options header, sep, not inferSchema",
        ),
        (
            require_rows("t", min=1, options={"mergeSchema": True}),
            "parquet has the options none, not mergeSchema",
        ),
        (require_rows("t", min=1, format="csv", options={"sep": "||"}), "one character"),
    ],
)
def test_what_only_spark_can_do_is_a_definition_problem(guardrail: Any, advice: str) -> None:
    assert advice in refused(file_body, workspace=WorkspaceSpec(post=[guardrail]))


def test_a_file_task_can_have_data_guardrails() -> None:
    spec = WorkspaceSpec(post=[require_schema("t", {"a b": "long"}), require_unique("t", "a b")])
    assert define(file_body, workspace=spec).workspace is spec
