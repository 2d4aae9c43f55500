"""Clean, a Spark task: every row gets one verdict, and the kept ones are the shop's events."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, Field

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
    task,
)

EVENT = """
    id STRING, at TIMESTAMP, session STRING, visitor STRING, country STRING, agent STRING,
    kind STRING, sku STRING, category STRING, price_cents INT, quantity INT, day DATE
"""
VERDICTS = ("kept", "duplicate", "late", "crawler", "scraper")
# The first that applies. A copy is one before it is anything else.
VERDICT = """
    CASE WHEN copy > 1 THEN 'duplicate'
         WHEN to_date(at) <> DATE'{day}' THEN 'late'
         WHEN agent RLIKE '(?i)bot|crawler|spider' THEN 'crawler'
         WHEN events_of_session > {most_events} THEN 'scraper'
         ELSE 'kept' END AS verdict
"""


class CleanParams(BaseModel):
    """Which day, and what counts as a person."""

    day: date = Field(description="The day to clean.")
    most_events: int = Field(
        50, ge=1, description="A session with more events than this is no person's."
    )


class CleanResult(BaseModel):
    """What became of the rows."""

    rows: int = Field(description="Rows that were ingested.")
    kept: int = Field(description="Rows that are left.")
    dropped: dict[str, int] = Field(description="Rows that are not, by verdict.")


@task(
    name="clean_events",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        pre=[require_schema("raw/events", EVENT)],
        post=[
            require_schema("clean/events", EVENT),
            require_rows("clean/events", min=1),
            require_not_null("clean/events", ["id", "at", "session", "sku"]),
            require_unique("clean/events", "id"),
        ],
    ),
    # A lease this short suits a demonstration: a worker that died is noticed within seconds.
    controls=TaskControls(
        retry=RetryPolicy(delay_seconds=1), timeout=TimeoutPolicy(response_seconds=15)
    ),
)
def clean_events(workspace: SparkWorkspace, params: CleanParams) -> CleanResult:
    """Drop duplicates, late events and machines."""
    # Not at the top: a worker's supervisor imports this module, and needs no Spark.
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    # A day is a day in UTC, wherever the server stands.
    workspace.spark.conf.set("spark.sql.session.timeZone", "UTC")
    judged = (
        workspace.read(f"raw/events/day={params.day}")
        .selectExpr(
            "*",
            "row_number() OVER (PARTITION BY id ORDER BY at) AS copy",
            "count(*) OVER (PARTITION BY session) AS events_of_session",
        )
        .selectExpr("*", VERDICT.format(day=params.day, most_events=params.most_events))
    )
    counts = Observation()
    counted = judged.observe(
        counts, *(expr(f"count_if(verdict = '{name}')").alias(name) for name in VERDICTS)
    )
    kept = counted.where("verdict = 'kept'").drop("copy", "events_of_session", "verdict")
    workspace.write(kept, f"clean/events/day={params.day}")
    # Counted on the way, so the rows pass by once.
    verdicts = dict(counts.get)
    return CleanResult(rows=sum(verdicts.values()), kept=verdicts.pop("kept"), dropped=verdicts)
