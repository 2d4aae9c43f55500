"""Spark's catalog belongs to the server: what a task makes there stays in its own session."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from perago import SparkWorkspace
from perago.errors import UnsupportedOperationError
from perago.protocol.outcome import Completed
from perago.spark.command_filter import CommandFilter
from perago.spark.ledger import WriteLedger
from perago.spark.session import close_session, end_session, interrupt, open_session
from support.real_world import Params, Result
from support.spark_world import EVENTS, RealSparkWorld, attempt, refused

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]


def test_what_would_outlive_the_session_is_refused_with_a_hint(world: RealSparkWorld) -> None:
    names: list[str] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        spark, frame = workspace.spark, workspace.read("raw")
        ways = {
            "saveAsTable": lambda: frame.write.saveAsTable("left"),
            "writeTo": lambda: frame.writeTo("left").using("parquet").create(),
            "CREATE TABLE": lambda: spark.sql("CREATE TABLE left AS SELECT 1 AS one"),
            "createTable": lambda: spark.catalog.createTable("left", path=workspace.input("raw")),
            "global view": lambda: frame.createGlobalTempView("left"),
            "CREATE VIEW": lambda: spark.sql("CREATE VIEW left AS SELECT 1 AS one"),
            "clone": spark.cloneSession,
        }
        for name, way in ways.items():
            with pytest.raises(UnsupportedOperationError):
                way()
            names.append(name)
        assert not [table.name for table in spark.catalog.listTables() if not table.isTemporary]
        frame.write.saveAsTable("left")
        return Result()

    outcome = refused(world, body, "UnsupportedOperationError")
    assert len(names) == 7
    assert "workspace.sql_path" in str(outcome.hint)


def databases(remote: str) -> set[str]:
    session = open_session(remote, uuid.uuid4().hex)
    try:
        # Not listDatabases, which looks each one up: another test may drop its own meanwhile.
        return {row.namespace for row in session.sql("SHOW DATABASES").collect()}
    finally:
        end_session(session)


def test_a_table_in_the_workspace_is_published_and_its_name_is_gone(world: RealSparkWorld) -> None:
    used: list[str] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        spark, folder = workspace.spark, f"run{len(used)}"
        location = workspace.output(f"{folder}/copy")
        create = f"CREATE TABLE copy USING parquet LOCATION '{location}'"
        spark.sql(f"{create} AS TABLE {workspace.sql_path('raw')}")
        more = spark.table("copy").write.option("path", workspace.output(f"{folder}/more"))
        more.saveAsTable("more")
        used.append(spark.catalog.currentDatabase())
        assert used[-1] in databases(world.remote)
        by_path = workspace.sql_path(f"{folder}/more", output=True)
        return Result(note=str(spark.sql(f"TABLE {by_path}").count()))

    # Twice: nothing of the first one is in the way of the second.
    for folder in ("run0", "run1"):
        outcome = attempt(world, body)
        assert isinstance(outcome, Completed), outcome
        assert outcome.output["result"] == {"note": str(len(EVENTS))}
        assert world.rows(f"data/{folder}/copy") == world.rows(f"data/{folder}/more") == EVENTS
        world.ref = outcome.output["workspace"]["ref"]
    assert len(set(used)) == 2
    assert not set(used) & databases(world.remote)


def test_a_table_of_the_workspace_stays_there_when_it_is_overwritten(
    world: RealSparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        spark, frame = workspace.spark, workspace.read("raw")
        frame.write.saveAsTable("copy", path=workspace.output("copy"))
        # Spark drops the table, and would make one in its warehouse.
        frame.where("id < 2").write.mode("overwrite").saveAsTable("Copy")
        frame.where("id = 2").write.mode("append").saveAsTable("copy")
        return Result(note=str(spark.table("copy").count()))

    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    assert outcome.output["result"] == {"note": "3"}
    assert world.rows("data/copy") == EVENTS[:3]


def test_the_tables_of_a_killed_execution_are_dropped_by_whoever_ends_its_session(
    spark_remote: str, tmp_path: Path
) -> None:
    execution = uuid.uuid4().hex
    session = open_session(spark_remote, execution)
    CommandFilter(session, WriteLedger()).allow(f"file://{tmp_path}")
    session.sql(f"CREATE TABLE left (id INT) USING parquet LOCATION 'file://{tmp_path}/left'")
    database = session.catalog.currentDatabase()
    assert database in databases(spark_remote)
    interrupt(spark_remote, execution)
    # pyspark would go on using it as this process's default session.
    session.release_session_on_close = False
    close_session(session)
    assert database not in databases(spark_remote)
