"""The quality report, a read-only file task: are the numbers sound, and what do they say?"""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from perago import WorkspaceSpec, require_dir, task
from webshop.charts import towers
from webshop.clean import CleanResult
from webshop.ingest import IngestResult
from webshop.page import Numbers, euros, render

_MOST_REJECTED = 0.02


class QualityParams(BaseModel):
    """What to judge, with what the tasks before have counted."""

    day: date = Field(description="The day of the report.")
    folder: Path = Field(description="Where the page is written; not in the workspace.")
    commit: str = Field(description="The commit that the numbers come from.")
    ingested: IngestResult = Field(description="The result of ingest_events.")
    cleaned: CleanResult = Field(description="The result of clean_events.")


class QualityResult(BaseModel):
    """The verdict, in short."""

    checks: dict[str, bool] = Field(description="What was checked, and whether it holds.")
    orders: int = Field(description="Visits that bought something.")
    revenue_cents: int = Field(description="What they paid.")
    page: Path = Field(description="The report.")
    chart: list[str] = Field(description="Revenue by hour, for a terminal.")


@task(
    name="quality_report",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="marts",
        read_only=True,
        pre=[require_dir("hourly"), require_dir("funnel")],
    ),
)
def quality_report(workspace: Path, params: QualityParams) -> QualityResult:
    """Check a day's numbers against each other and write them up as a page."""
    hourly = _rows(workspace / "hourly" / f"day={params.day}")
    funnel = _rows(workspace / "funnel" / f"day={params.day}")
    revenue = Counter[int]()
    for row in hourly:
        revenue[row["hour"]] += row["revenue_cents"]
    numbers = Numbers(
        day=params.day,
        commit=params.commit,
        lines=params.ingested.lines,
        kept=params.cleaned.kept,
        rejected=params.ingested.rejected,
        dropped=params.cleaned.dropped,
        revenue_by_hour=[revenue[hour] for hour in range(24)],
        sessions=sum(row["sessions"] for row in funnel),
        with_cart=sum(row["with_cart"] for row in funnel),
        with_purchase=sum(row["with_purchase"] for row in funnel),
        checks=check(params.ingested, params.cleaned, hourly, funnel),
    )
    page = params.folder / f"report-{params.day}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(numbers), encoding="utf-8")
    return QualityResult(
        checks=numbers.checks,
        orders=numbers.with_purchase,
        revenue_cents=revenue.total(),
        page=page,
        chart=chart(numbers.revenue_by_hour),
    )


def check(
    ingested: IngestResult,
    cleaned: CleanResult,
    hourly: list[dict[str, Any]],
    funnel: list[dict[str, Any]],
) -> dict[str, bool]:
    """What must hold between the steps of the pipeline, each in words."""
    rejected = sum(ingested.rejected.values())
    counted = sum(row["views"] + row["carts"] + row["purchases"] for row in hourly)
    narrows = (row["sessions"] >= row["with_cart"] >= row["with_purchase"] for row in funnel)
    return {
        "every line is an event or a reject": ingested.lines == ingested.events + rejected,
        f"at most {_MOST_REJECTED:.0%} of the lines are rejects": (
            rejected <= _MOST_REJECTED * ingested.lines
        ),
        "every event has a verdict": (
            ingested.events == cleaned.rows == cleaned.kept + sum(cleaned.dropped.values())
        ),
        "the hours add up to the kept events": counted == cleaned.kept,
        "no hour is without events": {row["hour"] for row in hourly} == set(range(24)),
        "the funnel narrows in every country": all(narrows),
    }


def chart(revenue_by_hour: list[int]) -> list[str]:
    """Revenue by hour in characters, with what the highest bar stands for."""
    hours = " ".join(f"{hour:02}" for hour in range(24))
    most = f"revenue by hour (UTC); the highest bar is {euros(max(revenue_by_hour))}"
    return [most, *towers(revenue_by_hour), hours]


def _rows(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return rows
