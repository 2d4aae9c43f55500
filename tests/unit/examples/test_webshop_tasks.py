"""The web shop's file tasks on folders: they are ordinary functions."""

from __future__ import annotations

import gzip
import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from webshop import data
from webshop.charts import bars, columns, ticks, towers
from webshop.clean import CleanResult
from webshop.ingest import IngestParams, IngestResult, ingest_events
from webshop.quality import QualityParams, quality_report
from webshop.workflow import definition

from perago import TaskTerminalError

DAY = date(2026, 3, 13)
INGESTED = IngestResult(lines=1_010, events=1_000, rejected={"broken <line>": 10})
CLEANED = CleanResult(rows=1_000, kept=960, dropped={"late": 40})


def test_ingest_accounts_for_every_line(tmp_path: Path) -> None:
    data.write_export(tmp_path / "landing" / str(DAY), DAY, 5_000)
    result = ingest_events(tmp_path, IngestParams(day=DAY))
    rows = pq.read_table(tmp_path / "events" / f"day={DAY}")
    rejects = pq.read_table(tmp_path / "rejects" / f"day={DAY}")
    assert result.lines == 5_000 == rows.num_rows + rejects.num_rows
    assert (result.events, sum(result.rejected.values())) == (rows.num_rows, rejects.num_rows)
    assert {"broken line", "stamp without offset", "no sku"} <= set(result.rejected)
    assert set(rejects["reason"].to_pylist()) == set(result.rejected)
    # Stamps from abroad are the same moments, in UTC.
    assert rows.schema.field("at").type == pa.timestamp("us", tz="UTC")


def test_a_day_that_is_ingested_again_replaces_itself_and_no_other(tmp_path: Path) -> None:
    data.write_export(tmp_path / "landing" / str(DAY), DAY, 1_000)
    for leftover in (f"events/day={DAY}/old.parquet", "events/day=2026-01-01/kept.parquet"):
        (tmp_path / leftover).parent.mkdir(parents=True)
        (tmp_path / leftover).touch()
    ingest_events(tmp_path, IngestParams(day=DAY))
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("events/*/*")}
    assert found == {f"events/day={DAY}/part-000.parquet", "events/day=2026-01-01/kept.parquet"}


@pytest.mark.parametrize("lines", [[b"{}\n"] * 9, []])
def test_a_day_of_nonsense_is_refused_for_good(tmp_path: Path, lines: list[bytes]) -> None:
    folder = tmp_path / "landing" / str(DAY)
    folder.mkdir(parents=True)
    (folder / "part-000.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
    with pytest.raises(TaskTerminalError, match=f"{len(lines)} of {len(lines)} lines"):
        ingest_events(tmp_path, IngestParams(day=DAY))


def report(folder: Path, *, hours: int = 24, views: int = 36) -> tuple[dict[str, bool], str]:
    """The report of a day of which every hour is alike: its checks and its page."""
    hourly = [
        {"hour": hour, "views": views, "carts": 3, "purchases": 1, "revenue_cents": 100 * hour}
        for hour in range(hours)
    ]
    funnel = [{"country": "DE", "sessions": 90, "with_cart": 20, "with_purchase": 5}]
    write(folder / "hourly" / f"day={DAY}", hourly)
    write(folder / "funnel" / f"day={DAY}", funnel)
    result = quality_report(
        folder,
        QualityParams(
            day=DAY, folder=folder / "out", commit="c0ffee", ingested=INGESTED, cleaned=CLEANED
        ),
    )
    assert result.page == folder / "out" / f"report-{DAY}.html"
    assert (result.orders, result.revenue_cents) == (5, 100 * sum(range(hours)))
    return result.checks, result.page.read_text()


def write(table: Path, rows: list[dict[str, Any]]) -> None:
    table.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), table / "part-0.parquet")
    (table / "_SUCCESS").write_text("{}")  # as Spark leaves it


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    checks, page = report(tmp_path)
    assert all(checks.values())
    assert page.count("<svg") == 3
    assert "Friday 13 March 2026" in page
    assert "c0ffee" in page
    assert "broken &lt;line&gt;" in page
    assert not re.search(r"<script|<link|src=|href=|url\(|https?:", page)


def test_the_report_says_which_checks_do_not_hold(tmp_path: Path) -> None:
    checks, page = report(tmp_path, hours=23)
    failed = {name for name, holds in checks.items() if not holds}
    assert failed == {"no hour is without events", "the hours add up to the kept events"}
    assert page.count('class="fails"') == 2


@pytest.mark.parametrize("most", [0.3, 1, 4, 7, 99, 100, 25_800, 1e9])
def test_an_axis_begins_at_zero_and_reaches_past_the_largest_value(most: float) -> None:
    steps = ticks(most)
    assert steps[0] == 0
    assert steps[-2] < most <= steps[-1]
    assert 3 <= len(steps) <= 6


def test_bars_are_as_long_as_their_values() -> None:
    lengths = re.findall(r'width="([\d.]+)" height="20"', bars([("a", 100, ""), ("b", 25, "")]))
    assert float(lengths[0]) == 4 * float(lengths[1])
    heights = re.findall(r'height="([\d.]+)" rx', columns([4, 1], ["x", "y"], axis="", label=str))
    assert float(heights[0]) == 4 * float(heights[1])


def test_towers_fill_their_rows() -> None:
    assert towers([0, 1, 2], rows=2) == ["      ██", "   ██ ██"]
    assert towers([0, 0], rows=1) == [""]


def test_each_task_gets_the_workspace_that_the_one_before_left() -> None:
    steps = definition()["tasks"]
    sources = [step["inputParameters"]["workspace"] for step in steps]
    outputs = [f"${{{step['taskReferenceName']}.output.workspace}}" for step in steps]
    assert sources == ["${workflow.input.workspace}", *outputs[:-1]]
