"""What a task reads of the changes since it last published; the rules are tested in memory."""

from __future__ import annotations

from typing import Any

import pytest

from perago import SparkWorkspace, WorkspaceChanges
from perago.protocol.outcome import Completed
from support.real_world import Params, Result
from support.spark_world import RealSparkWorld, attempt

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = "id BIGINT, day STRING"


class Load:
    """A body that appends the new rows of ``days`` to ``loaded``."""

    def __init__(self) -> None:
        self.changes = WorkspaceChanges()
        self.rows: list[tuple[Any, ...]] = []

    def __call__(self, workspace: SparkWorkspace, params: Params) -> Result:
        self.changes = workspace.changes()
        new = workspace.read_changes("days", schema=SCHEMA)
        self.rows = sorted(tuple(row) for row in new.collect())
        workspace.write(new, "loaded", mode="append")
        return Result()


def load(world: RealSparkWorld) -> Load:
    """One attempt from where the branch is now."""
    world.ref = world.history()[0]
    body = Load()
    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    return body


def put_day(world: RealSparkWorld, day: str, name: str, *ids: int) -> None:
    rows = [{"id": it} for it in ids]
    world.put_table("main", f"data/days/day={day}/{name}.parquet", rows)


def test_each_run_loads_what_came_since_the_last_one(world: RealSparkWorld) -> None:
    put_day(world, "1", "a", 1, 2)
    start = world.commit("main", {})
    first = load(world)
    assert first.rows == [(1, "1"), (2, "1")]
    there = ("a.txt", "days/day=1/a.parquet", "raw/part-0.parquet", "sub/b.txt")
    assert first.changes == WorkspaceChanges(added=there)
    published = world.history()[0]

    put_day(world, "1", "b", 3)
    # Hadoop would take this name for a pattern, and Spark writes such values into folders.
    put_day(world, "x{y,z}[0]", "c*", 4)
    world.commit("main", {"elsewhere/file": "text", "data/days/_SUCCESS": "{}"})
    second = load(world)
    assert second.rows == [(3, "1"), (4, "x{y,z}[0]")]
    assert second.changes == WorkspaceChanges(
        added=("days/_SUCCESS", "days/day=1/b.parquet", "days/day=x{y,z}[0]/c*.parquet"),
        since=published,
    )
    assert [row["id"] for row in world.rows("data/loaded")] == [1, 2, 3, 4]
    published = world.history()[0]

    def look(workspace: SparkWorkspace, params: Params) -> Result:
        assert workspace.changes() == WorkspaceChanges(since=published)
        for path in ("days", "not-there-yet"):
            nothing = workspace.read_changes(path, schema=SCHEMA)
            assert (nothing.columns, nothing.collect()) == (["id", "day"], [])
        assert workspace.read_changes("days").columns == ["id", "day"]
        # What it published itself counts for a ref that the author names.
        assert workspace.read_changes("days", since=start).count() == 2
        assert workspace.read_changes("loaded", since=start).count() == 4
        return Result()

    world.ref = published
    outcome = attempt(world, look)
    assert isinstance(outcome, Completed), outcome
