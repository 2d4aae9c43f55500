"""What the text of an SQL statement says that it writes and creates."""

from __future__ import annotations

import pytest

from perago.spark.ledger import Effect
from perago.spark.statements import Created, Written, read_statement

URI = "s3a://r/b/t"
ADDS, PARTITIONS, REPLACES = Effect.ADDS, Effect.REPLACES_PARTITIONS, Effect.REPLACES


@pytest.mark.parametrize(
    ("text", "created"),
    [
        ("CREATE TABLE t (id INT)", Created("table", ("t",))),
        ("create table if not exists `My T` as select 1", Created("table", ("My T",), None, True)),
        ("-- first\n/* then */ CREATE OR REPLACE TABLE a.b (id INT)", Created("table", ("a", "b"))),
        ("REPLACE TABLE t (id INT)", Created("table", ("t",))),
        (f"CREATE EXTERNAL TABLE t (id INT) LOCATION '{URI}'", Created("table", ("t",), URI)),
        (f"CREATE TABLE t LOCATION '{URI}' AS TABLE s", Created("table", ("t",), URI, True)),
        (f"CREATE TABLE t USING csv OPTIONS (path '{URI}')", Created("table", ("t",), URI)),
        (f"CREATE TABLE t USING csv OPTIONS ('path' = '{URI}')", Created("table", ("t",), URI)),
        (f"CREATE TABLE delta.`{URI}` (id INT)", Created("table", ("delta", URI), URI)),
        (f"CREATE TABLE t USING csv LOCATION r'{URI}'", Created("table", ("t",), URI)),
        ("SELECT r'\\'; CREATE TABLE t (id INT) -- '", Created("table", ("t",))),
        ("-- it ends here\rCREATE TABLE t (id INT)", Created("table", ("t",))),
        ("/* a /* b */ c */ CREATE TABLE t (id INT)", Created("table", ("t",))),
        ("CREATE TABLE t LIKE s", Created("table", ("t",))),
        ("BEGIN DROP TABLE s; CREATE TABLE t (id INT); END", Created("table", ("t",))),
        ("CREATE VIEW v AS SELECT 1", Created("view", ("v",), None, True)),
        ("CREATE GLOBAL TEMP VIEW v AS SELECT 1", Created("global view", ("v",), None, True)),
        ("CREATE SCHEMA s", Created("database", ("s",))),
        ("CREATE FUNCTION f AS 'a.B'", Created("function", ("f",), None, True)),
    ],
)  # fmt: skip
def test_what_a_statement_creates_is_found(text: str, created: Created) -> None:
    assert read_statement(text).created == (created,)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"INSERT OVERWRITE DIRECTORY '{URI}' USING parquet SELECT 1", Written((), URI, REPLACES)),
        (f"INSERT OVERWRITE LOCAL DIRECTORY '{URI}' SELECT 1", Written((), URI, REPLACES)),
        (
            f"INSERT OVERWRITE DIRECTORY USING csv OPTIONS (path '{URI}') SELECT 1",
            Written((), URI, REPLACES),
        ),
        ("INSERT INTO t VALUES (1)", Written(("t",), None, ADDS)),
        ("INSERT OVERWRITE TABLE a.t SELECT 1", Written(("a", "t"), None, REPLACES)),
        ("INSERT OVERWRITE t PARTITION (d = 1) SELECT 1", Written(("t",), None, PARTITIONS, "d=1")),
        (
            "INSERT OVERWRITE a.t PARTITION (d = 'x y', `h`=2, m) TABLE s",
            Written(("a", "t"), None, PARTITIONS, "d=x y/h=2"),
        ),
        ("INSERT OVERWRITE t PARTITION (d) SELECT 1", Written(("t",), None, REPLACES)),
        (
            "INSERT OVERWRITE t SELECT rank() OVER (PARTITION BY d ORDER BY n) FROM s",
            Written(("t",), None, REPLACES),
        ),
        ("INSERT INTO t PARTITION (d = 1) SELECT 1", Written(("t",), None, ADDS)),
        ("WITH s AS (SELECT 1) INSERT INTO t SELECT * FROM s", Written(("t",), None, ADDS)),
        ("MERGE INTO delta.`s3a://r/b/t` USING s ON 1 = 1", Written(("delta", URI), URI, ADDS)),
        ("DELETE FROM delta.`s3a://r/b/t` WHERE a = 0", Written(("delta", URI), URI, ADDS)),
        ("UPDATE delta.`s3a://r/b/t` SET a = 0", Written(("delta", URI), URI, ADDS)),
        ("TRUNCATE TABLE t", Written(("t",), None, ADDS)),
        ("merge with schema evolution into t USING s ON 1 = 1", Written(("t",), None, ADDS)),
        ("BEGIN UPDATE t SET a = 0; END", Written(("t",), None, ADDS)),
        (
            "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET *",
            Written(("t",), None, ADDS),
        ),
    ],
)
def test_what_a_statement_writes_is_found(text: str, written: Written) -> None:
    assert read_statement(text).written == (written,)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'CREATE TABLE t' AS text, \"INSERT INTO t\" AS more -- CREATE TABLE t",
        "SELECT replace(name, 'a', 'b') FROM parquet.`s3a://r/c/t`",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
        "CREATE TEMP VIEW v USING parquet OPTIONS (path 's3a://r/c/t')",
        "CREATE TEMPORARY FUNCTION f AS 'a.B'",
        "SELECT `CREATE` FROM t /* INSERT INTO t */",
        "SHOW CREATE TABLE t",
        "/* old /* see below */ CREATE TABLE t (id INT) */ SELECT 1",
        "/* not closed CREATE TABLE t (id INT)",
        "SELECT 1 -- and \\\nCREATE TABLE t (id INT)",
        "EXPLAIN CREATE TABLE t AS SELECT 1",
        "DROP TABLE t",
        "",
        "CREATE",
        "INSERT INTO",
    ],
)
def test_nothing_else_is(text: str) -> None:
    found = read_statement(text)
    assert found.created == ()
    assert not [it for it in found.written if it.name or it.location]
