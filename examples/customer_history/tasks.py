"""Keep the history of customers: each row is what was true from one day until another."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel

from perago import SparkWorkspace, WorkspaceSpec, require_unique, task

# A changed customer is in the source twice: with its key, to end the row that held so far, and
# without one, which matches nothing and is inserted.
MERGE = """
MERGE INTO {table} AS old
USING (
  SELECT id AS match_id, id, name, city FROM export
  UNION ALL
  SELECT NULL, export.id, export.name, export.city
  FROM export JOIN {table} AS held ON export.id = held.id AND held.valid_to IS NULL
  WHERE NOT (export.name <=> held.name AND export.city <=> held.city)
) AS new
ON old.id = new.match_id AND old.valid_to IS NULL
WHEN MATCHED AND NOT (old.name <=> new.name AND old.city <=> new.city)
  THEN UPDATE SET valid_to = DATE '{day}'
WHEN NOT MATCHED
  THEN INSERT (id, name, city, valid_from, valid_to)
  VALUES (new.id, new.name, new.city, DATE '{day}', NULL)
"""


class HistoryParams(BaseModel):
    """Which export to take up."""

    day: date


class HistoryResult(BaseModel):
    """What the history holds now."""

    customers: int
    rows: int


@task(
    name="customer_history",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="crm",
        post=[require_unique("customers", ["id", "valid_from"], format="delta")],
    ),
)
def customer_history(workspace: SparkWorkspace, params: HistoryParams) -> HistoryResult:
    """End the rows of customers that changed, and add what is true now."""
    export = workspace.read(
        f"landing/{params.day}.csv",
        format="csv",
        schema="id BIGINT, name STRING, city STRING",
        header=True,
    )
    if any(path.startswith("customers/") for path in workspace.paths()):
        export.createOrReplaceTempView("export")
        # On the output's copy of the table: the input is a commit and never changes.
        table = workspace.sql_path("customers", format="delta", output=True)
        workspace.spark.sql(MERGE.format(table=table, day=params.day))
    else:
        first = export.selectExpr(
            "*", f"DATE '{params.day}' AS valid_from", "CAST(NULL AS DATE) AS valid_to"
        )
        workspace.write(first, "customers", format="delta")
    written = workspace.spark.read.load(workspace.output("customers"), format="delta")
    [(customers, rows)] = written.selectExpr("count(DISTINCT id)", "count(*)").collect()
    return HistoryResult(customers=customers, rows=rows)
