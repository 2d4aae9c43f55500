"""The generated day: exact, repeatable, lazy, and dirty in every way that the pipeline handles."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from webshop import data

DAY = date(2026, 3, 13)


@pytest.fixture(scope="module")
def day() -> list[str]:
    return list(data.lines(DAY, 20_000))


@pytest.fixture(scope="module")
def events(day: list[str]) -> list[dict[str, Any]]:
    """The lines that are whole, with their stamps read."""
    found = []
    for line in day:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        found.append({**event, "at": datetime.fromisoformat(event["at"])})
    return found


@pytest.mark.parametrize("rows", [1, 7, 1_000, 20_001])
def test_a_day_has_exactly_as_many_lines_as_asked_for(rows: int) -> None:
    assert sum(1 for _ in data.lines(DAY, rows)) == rows


def test_a_day_is_the_same_each_time_and_no_two_days_are() -> None:
    day = list(data.lines(DAY, 2_000))
    assert list(data.lines(DAY, 2_000)) == day
    assert list(data.lines(DAY + timedelta(days=1), 2_000)) != day
    assert list(data.lines(DAY, 2_000, seed=2)) != day


def test_a_huge_day_begins_at_once() -> None:
    assert len(list(islice(data.lines(DAY, 10**12), 10))) == 10


def test_the_evening_is_busier_than_the_night(events: list[dict[str, Any]]) -> None:
    hours = Counter(event["at"].hour for event in events if event["at"].utcoffset() == timedelta(0))
    assert set(hours) == set(range(24))
    assert hours[20] > 10 * hours[3]


def test_visits_narrow_from_views_to_purchases(events: list[dict[str, Any]]) -> None:
    kinds = Counter(event["kind"] for event in events)
    assert kinds["view"] > 5 * kinds["cart"] > 5 * kinds["purchase"] > 0


def test_every_kind_of_dirt_is_there(day: list[str], events: list[dict[str, Any]]) -> None:
    broken = len(day) - len(events)
    copies = Counter(event["id"] for event in events)
    sessions = Counter(event["session"] for event in events)
    offsets = {event["at"].utcoffset() for event in events}
    lost = [event for event in events if len(event) < 11]
    late = [event for event in events if event["at"].date() == DAY - timedelta(days=1)]
    crawlers = [event for event in events if event["agent"] in data.CRAWLERS]
    assert 0 < broken < 200
    assert max(copies.values()) == 2
    assert max(sessions.values()) > 50
    assert offsets == {None, *(timedelta(hours=hours) for hours in (0, 9, 1, -5))}
    assert 0 < len(lost) < 400
    assert 0 < len(late) < 400
    assert 0 < len(crawlers) < 3_000


def test_an_export_is_written_in_parts_whose_bytes_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PART_LINES", 400)
    first = data.write_export(tmp_path / "a", DAY, 1_000)
    second = data.write_export(tmp_path / "b", DAY, 1_000)
    assert [path.name for path in first] == [f"part-00{n}.jsonl.gz" for n in range(3)]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
