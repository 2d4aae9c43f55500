"""A Delta table as part of a workspace: written, overwritten, and read at a published commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perago import SparkWorkspace, require_rows, require_schema
from perago.connections import LakeFSConnection
from perago.protocol.outcome import Completed
from perago.servers.spark import SMALL_JOBS, ConnectSettings
from support.connect import DELTA, connect_server
from support.real_world import Params, Result
from support.spark_world import EVENTS, RealSparkWorld, attempt

# The jars are fetched when the server first starts.
pytestmark = [
    *[pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(600)],
    pytest.mark.slow,
]

# The defaults are for clusters: 250 tasks to read a table's log of three entries.
SMALL = {"spark.databricks.delta.snapshotPartitions": "2"}


@pytest.fixture(scope="module")
def spark_remote(
    connection: LakeFSConnection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    conf = SMALL_JOBS | DELTA | SMALL
    settings = ConnectSettings("delta", connection, "local[2]", conf)
    with connect_server(tmp_path_factory.mktemp("delta"), settings) as server:
        yield server.remote


def write_all(workspace: SparkWorkspace, params: Params) -> Result:
    workspace.write(workspace.read("raw"), "table", format="delta")
    return Result()


def write_two(workspace: SparkWorkspace, params: Params) -> Result:
    """Overwrite what the input has, and append to that in the same task."""
    first = workspace.read("table", format="delta").where("id = 0")
    second = workspace.read("table", format="delta").where("id = 1")
    workspace.write(first, "table", format="delta")
    workspace.write(second, "table", format="delta", mode="append")
    return Result()


def merge(workspace: SparkWorkspace, params: Params) -> Result:
    """Update one row and insert one, on the output's copy of the table."""
    workspace.read("raw").where("id IN (1, 5)").createOrReplaceTempView("news")
    workspace.spark.sql(
        f"MERGE INTO delta.`{workspace.output('table')}` AS old USING news ON old.id = news.id "
        "WHEN MATCHED THEN UPDATE SET amount = -1 WHEN NOT MATCHED THEN INSERT *"
    )
    return Result()


def replace_users(workspace: SparkWorkspace, params: Params) -> Result:
    """Replace one of three partitions."""
    users = {"format": "delta", "partition_by": ["user"]}
    workspace.write(workspace.read("raw"), "users", **users)  # type: ignore[arg-type]
    one = workspace.read("raw").where("id = 0")
    workspace.write(one, "users", mode="overwrite_partitions", **users)  # type: ignore[arg-type]
    found = workspace.spark.sql(f"TABLE {workspace.sql_path('users', format='delta', output=True)}")
    return Result(note=str(sorted(row.id for row in found.collect())))


def test_partitions_of_a_delta_table_are_replaced_by_its_log(world: RealSparkWorld) -> None:
    outcome = attempt(world, replace_users)
    assert isinstance(outcome, Completed), outcome
    assert outcome.output["result"] == {"note": "[0, 1, 2, 4, 5]"}


def count(workspace: SparkWorkspace, params: Params) -> Result:
    rows = workspace.read("table", format="delta").count()
    first = workspace.read("table", format="delta", versionAsOf=0).count()
    merged = workspace.read("table", format="delta").where("amount = -1").count()
    return Result(note=f"{rows} of {first}, {merged} merged")


def test_a_delta_table_is_written_overwritten_merged_and_read_at_the_published_commit(
    world: RealSparkWorld,
) -> None:
    guardrails = [
        require_schema("table", "id BIGINT, user STRING, amount BIGINT", format="delta"),
        require_rows("table", min=len(EVENTS), max=len(EVENTS), format="delta"),
    ]
    world.start()
    outcome, _ = world.attempt(world.spark_job(write_all, post=guardrails))
    assert isinstance(outcome, Completed), outcome
    first = world.ref = outcome.output["workspace"]["ref"]
    assert "data/table/_delta_log/00000000000000000000.json" in world.paths(first)

    world.start()
    outcome, _ = world.attempt(
        world.spark_job(write_two, post=[require_rows("table", min=2, max=2, format="delta")])
    )
    assert isinstance(outcome, Completed), outcome
    second = world.ref = outcome.output["workspace"]["ref"]
    assert world.history()[:2] == [second, first]
    assert not [path for path in world.paths(second) if "_temporary" in path]

    world.start()
    outcome, _ = world.attempt(world.spark_job(merge))
    assert isinstance(outcome, Completed), outcome
    world.ref = outcome.output["workspace"]["ref"]

    world.start()
    outcome, _ = world.attempt(world.spark_job(count, read_only=True))
    assert isinstance(outcome, Completed), outcome
    assert outcome.output["result"] == {"note": "3 of 6, 1 merged"}
    world.assert_tidy()
