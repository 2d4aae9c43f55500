"""Append what has landed since the last run."""

from __future__ import annotations

from pydantic import BaseModel, Field

from perago import SparkWorkspace, TaskFailed, WorkspaceSpec, task

ORDER = "id BIGINT, shop STRING, amount DOUBLE"


class LoadParams(BaseModel):
    """From where on to load."""

    since: str | None = Field(
        None, description="A commit, branch or tag; by default, the last load."
    )


class LoadResult(BaseModel):
    """What was new."""

    files: int
    rows: int


@task(name="load_orders", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="sales"))
def load_orders(workspace: SparkWorkspace, params: LoadParams) -> LoadResult:
    """Append the orders of new files to the table."""
    landed = workspace.changes(since=params.since).below("landing")
    if landed.changed:
        # Their rows are in the table already.
        raise TaskFailed(f"changed after they were loaded: {', '.join(landed.changed)}")
    new = workspace.read_changes("landing", since=params.since, format="json", schema=ORDER)
    rows = new.count()
    if rows:
        workspace.write(new, "orders", mode="append")
    return LoadResult(files=len(landed.added), rows=rows)
