"""What was measured, as JSON: a file per row, written when the row is done."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, Field

from perago import __version__
from support.bench.rounds import Contest, Samples, Value
from support.bench.table import BY_KEY, ROWS

ROOT = Path(__file__).parents[3]
# Where `make bench` leaves everything.
BENCH = ROOT / "build" / "bench"


class Machine(BaseModel):
    """On what it was measured. Numbers of two machines are not comparable, ratios nearly are."""

    cores: int
    # Of the minute before the row was done: how much else the machine had to do.
    load: float
    system: str
    python: str

    @classmethod
    def this(cls) -> Machine:
        return cls(
            cores=os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 1),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
        )


class Measured(BaseModel):
    """One row: its figures, and all samples that they were made of."""

    measured_at: str
    version: str
    rounds: int = 0
    machine: Machine | None = None
    figures: dict[str, Value] = Field(default_factory=dict)
    samples: dict[str, Samples] = Field(default_factory=dict)
    # Peers that could not take part, and why.
    absent: dict[str, str] = Field(default_factory=dict)
    # Why the row could not be measured.
    failure: str | None = None


class Results(BaseModel):
    """All rows that have been measured."""

    rows: dict[str, Measured] = Field(default_factory=dict)

    def newer(self, others: Results) -> Results:
        """These, with the rows of the others in their place; in the order of the table."""
        rows = {**self.rows, **others.rows}
        return Results(rows={row.key: rows[row.key] for row in ROWS if row.key in rows})

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> Results:
        if not file.exists():
            return cls()
        return cls.model_validate_json(file.read_text(encoding="utf-8"))


class Book:
    """Takes down what rows measure; each is on disk before the next one begins."""

    def __init__(self, folder: Path = BENCH) -> None:
        self._folder = folder / "rows"

    def record(self, key: str, contest: Contest, figures: dict[str, Value | None]) -> None:
        """Take down a row. A figure without a value is one whose peer is missing."""
        row = BY_KEY[key]
        unknown = figures.keys() - {figure.name for figure in row.figures}
        if unknown:
            raise ValueError(f"the row {key} has no figure {', '.join(sorted(unknown))}")
        counts = [len(each) for found in contest.samples.values() for each in found.values()]
        rounded = {
            aspect: {name: [round(one, 6) for one in each] for name, each in found.items()}
            for aspect, found in contest.samples.items()
        }
        self._write(
            key,
            _now(
                rounds=max(counts, default=0),
                figures={name: value for name, value in figures.items() if value is not None},
                samples=rounded,
                absent=contest.absent,
            ),
        )

    def fail(self, key: str, reason: str) -> None:
        """Take down that a row could not be measured."""
        self._write(key, _now(failure=reason))

    def results(self) -> Results:
        """All rows in the folder."""
        files = sorted(self._folder.glob("*.json")) if self._folder.exists() else []
        found = {
            file.stem: Measured.model_validate_json(file.read_text(encoding="utf-8"))
            for file in files
        }
        return Results().newer(Results(rows=found))

    def _write(self, key: str, measured: Measured) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = measured.model_dump_json(indent=1, exclude_none=True) + "\n"
        partial = self._folder / f"{key}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._folder / f"{key}.json")


def _now(**fields: object) -> Measured:
    return Measured.model_validate(
        {
            "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "version": __version__,
            "machine": Machine.this(),
            **fields,
        }
    )
