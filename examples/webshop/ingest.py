"""Ingest, a file task: the export's lines become typed rows; the others are kept with a reason."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import AwareDatetime, BaseModel, Field, NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from perago import TaskTerminalError, WorkspaceSpec, require_dir, require_glob, task

_BATCH_LINES = 20_000
_LONGEST_REJECT = 200
_EVENTS = pa.schema(
    {
        "id": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "session": pa.string(),
        "visitor": pa.string(),
        "country": pa.string(),
        "agent": pa.string(),
        "kind": pa.string(),
        "sku": pa.string(),
        "category": pa.string(),
        "price_cents": pa.int32(),
        "quantity": pa.int32(),
    }
)
_REJECTS = pa.schema({"file": pa.string(), "reason": pa.string(), "text": pa.string()})


class Event(TypedDict):
    """What a line must be to count as an event."""

    id: str
    at: AwareDatetime
    session: str
    visitor: str
    country: str
    agent: str
    kind: Literal["view", "cart", "purchase"]
    sku: str
    category: str
    price_cents: NonNegativeInt
    quantity: NonNegativeInt


_event = TypeAdapter(Event)


class IngestParams(BaseModel):
    """Which export to read, and how bad it may be."""

    day: date = Field(description="The day of the export, which is the name of its folder.")
    most_rejected: float = Field(
        0.05, ge=0, le=1, description="The share of rejected lines from which on a day is refused."
    )


class IngestResult(BaseModel):
    """Where the lines of the export went."""

    lines: int = Field(description="Lines in the export.")
    events: int = Field(description="Lines that became rows.")
    rejected: dict[str, int] = Field(description="Lines that did not, by reason.")


@task(
    name="ingest_events",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="raw",
        pre=[require_glob("landing/*/*.jsonl.gz")],
        post=[require_dir("events"), require_dir("rejects")],
    ),
)
def ingest_events(workspace: Path, params: IngestParams) -> IngestResult:
    """Parse a day's export into Parquet."""
    exports = sorted((workspace / "landing" / str(params.day)).glob("*.jsonl.gz"))
    events = _fresh(workspace / "events" / f"day={params.day}")
    rejects = _fresh(workspace / "rejects" / f"day={params.day}")
    rows, rejected = 0, Counter[str]()
    for export in exports:
        name = export.name.replace(".jsonl.gz", ".parquet")
        with (
            pq.ParquetWriter(events / name, _EVENTS) as good,
            pq.ParquetWriter(rejects / name, _REJECTS) as bad,
        ):
            for batch in _batches(export):
                parsed, refused = _parse(export.name, batch)
                good.write_table(pa.Table.from_pylist(parsed, _EVENTS))
                bad.write_table(pa.Table.from_pylist(refused, _REJECTS))
                rows += len(parsed)
                rejected.update(reject["reason"] for reject in refused)
    lines = rows + rejected.total()
    if rejected.total() > params.most_rejected * lines or not rows:
        # The same lines would fail again: no retry, and nothing of this is published.
        raise TaskTerminalError(f"{rejected.total()} of {lines} lines of {params.day} are no event")
    return IngestResult(lines=lines, events=rows, rejected=dict(rejected.most_common()))


def _fresh(folder: Path) -> Path:
    """An empty folder: a day that is ingested again replaces what there was of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _batches(export: Path) -> Iterator[list[bytes]]:
    """Some lines at a time, so that a large export needs no more memory than a small one."""
    with gzip.open(export) as lines:
        while batch := list(islice(lines, _BATCH_LINES)):
            yield batch


def _parse(file: str, lines: list[bytes]) -> tuple[list[Event], list[dict[str, Any]]]:
    events, rejects = [], []
    for line in lines:
        try:
            events.append(_event.validate_json(line))
        except ValidationError as error:
            text = line.decode(errors="replace").rstrip("\n")[:_LONGEST_REJECT]
            rejects.append({"file": file, "reason": _reason(error), "text": text})
    return events, rejects


def _reason(error: ValidationError) -> str:
    """The first problem, in words that can be counted."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, problem["loc"]))
    match problem["type"]:
        case "json_invalid":
            return "broken line"
        case "missing":
            return f"no {field}"
        case "timezone_aware":
            return "stamp without offset"
        case _:
            return f"bad {field}"
