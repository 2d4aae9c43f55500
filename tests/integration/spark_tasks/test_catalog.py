"""Spark's catalog belongs to the server: what a task makes there stays in its own session."""

from __future__ import annotations

import pytest

from perago import SparkWorkspace
from perago.errors import UnsupportedOperationError
from perago.protocol.outcome import Completed
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


def test_a_table_in_the_workspace_is_published_and_its_name_is_gone(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        spark = workspace.spark
        source, target = workspace.sql_path("raw"), workspace.output("copy")
        create = f"CREATE TABLE copy USING parquet LOCATION '{target}'"
        spark.sql(f"{create} AS TABLE {source}")
        spark.table("copy").write.option("path", workspace.output("more")).saveAsTable("more")
        assert spark.sql("SELECT count(*) AS n FROM more").head(1)[0].n == len(EVENTS)
        read_again = workspace.sql_path("copy", output=True)
        return Result(note=str(spark.sql(f"TABLE {read_again}").count()))

    def look(workspace: SparkWorkspace, params: Params) -> Result:
        catalog = workspace.spark.catalog
        tables = [table.name for table in catalog.listTables()]
        return Result(note=f"{tables} {[it.name for it in catalog.listDatabases()]}")

    # Twice: nothing of the first one is in the way of the second.
    for _ in range(2):
        outcome = attempt(world, body)
        assert isinstance(outcome, Completed), outcome
        assert outcome.output["result"] == {"note": str(len(EVENTS))}
        assert world.rows("data/copy") == world.rows("data/more") == EVENTS
        world.ref = outcome.output["workspace"]["ref"]
    found = attempt(world, look, read_only=True)
    assert isinstance(found, Completed), found
    assert found.output["result"] == {"note": "[] ['default']"}
