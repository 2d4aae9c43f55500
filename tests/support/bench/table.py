"""The table of ``make bench``: what is measured, beside what, and what is to be reached."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

# The name of this product among the contestants; the package of PyPI is called perago.
OURS = "perago-spark"
FASTER, ITS_TIME = "× as fast", "× its time"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row, and its bound."""

    name: str
    reach: float
    unit: str
    is_floor: bool
    # What an earlier version reached, as it was written down.
    earlier: str = "–"

    def is_reached(self, value: float) -> bool:
        """Whether a value keeps the bound, read as precisely as it is shown."""
        shown = float(f"{value:.3g}")
        return shown >= self.reach if self.is_floor else shown <= self.reach

    @property
    def bound(self) -> str:
        return f"{'≥' if self.is_floor else '≤'} {self.reach:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; a test of ``tests/bench`` measures it."""

    key: str
    work: str
    beside: str
    figures: tuple[Figure, ...]
    rounds: int = 5
    # Left out by QUICK=1.
    is_long: bool = False

    def figure(self, name: str) -> Figure:
        return next(figure for figure in self.figures if figure.name == name)


def faster(name: str, reach: float, earlier: str = "–") -> Figure:
    """A figure that says how many times the peer's speed is reached."""
    return Figure(name, reach, FASTER, True, earlier)


def its_time(name: str, reach: float, earlier: str = "–") -> Figure:
    """A figure that says how many times the peer's time is taken."""
    return Figure(name, reach, ITS_TIME, False, earlier)


def at_most(name: str, reach: float, unit: str, earlier: str = "–") -> Figure:
    return Figure(name, reach, unit, False, earlier)


NO_DELAY, DEFAULT_DELAY = "batch delay 0", "default delay"
PEER_PACKAGE = "perago 0.6.1"

ROWS = (
    Row(
        "attempt-50",
        "attempt, 50 × 10 KB, 5 changed",
        PEER_PACKAGE,
        (faster(NO_DELAY, 6, "3.2–4.0"), faster(DEFAULT_DELAY, 8, "4.8")),
        rounds=9,
    ),
    Row(
        "attempt-1000",
        "attempt, 1,000 × 10 KB, 100 changed: first step on a host",
        PEER_PACKAGE,
        (faster(NO_DELAY, 6, "3.9–4.7"), faster(DEFAULT_DELAY, 18, "13.4")),
        is_long=True,
    ),
    Row(
        "attempt-1000-second",
        "the same, second step of a workflow on that host",
        PEER_PACKAGE,
        (faster(NO_DELAY, 20), faster(DEFAULT_DELAY, 60)),
        is_long=True,
    ),
    Row(
        "attempt-10000",
        "attempt, 10,000 × 10 KB, 100 changed (batch delay 0)",
        PEER_PACKAGE,
        (faster("first step", 9, "6.6"), faster("second step", 40)),
        rounds=3,
        is_long=True,
    ),
    Row(
        "download-2000",
        "download 2,000 × 10 KB at a commit, cold",
        "lakectl -p 32",
        (faster("down", 1.2, "0.97"),),
    ),
    Row(
        "upload-2000",
        "upload 2,000 × 10 KB (the whole stage phase)",
        "lakectl -p 32",
        (faster("up", 1.75, "1.75"),),
    ),
    Row(
        "large-object",
        "1 × 1 GB",
        "lakectl",
        (
            faster("up", 3, "3.0"),
            faster("down", 1.1, "0.43"),
            at_most("memory", 200, "MB"),
        ),
        rounds=7,
    ),
    Row(
        "s3-small",
        "LakeFS on an S3 store: 2,000 × 10 KB",
        "lakectl, which uses presigned addresses",
        (faster("up", 1.3, "1.18"), faster("down", 1.3, "1.12")),
    ),
    Row(
        "s3-large",
        "LakeFS on an S3 store: 1 × 512 MB",
        "lakectl, which uses presigned addresses",
        (faster("up", 1.1, "0.63"), faster("down", 1.1, "0.33")),
    ),
    Row(
        "many-objects",
        "100,000 × 200 B, 10 changed",
        "itself",
        (
            # Ten times the objects of a tenth of the size take ten times as long, or less.
            at_most("growth", 1.2, "× per object of 10,000", "41 s in all"),
            at_most("second step", 0.167, "× the first step"),
            at_most("memory", 250, "MB", "236"),
        ),
        rounds=3,
        is_long=True,
    ),
    Row(
        "tiny-tasks",
        "tiny workspace-free tasks, 4 processes",
        "conductor-python's task handler",
        (faster("tasks", 1.2, "0.59"),),
        rounds=3,
    ),
    Row(
        "publish",
        "publication (second fence to read-back)",
        "the same calls made bare",
        (its_time("publish", 1.3),),
        rounds=15,
    ),
    Row(
        "spark-task",
        "Spark task, 1 GB of Parquet",
        "the bare job",
        (
            its_time("alone", 1.05, "0.94"),
            its_time("two data guardrails", 1.1, "1.18"),
            at_most("four data guardrails", 1.25, "× the task without"),
        ),
        is_long=True,
    ),
    Row(
        "spark-sharing",
        "a short Spark attempt beside a long job of another attempt",
        "the same attempt alone",
        (its_time("beside", 2, "9.8"),),
    ),
    Row(
        "spark-session",
        "opening a Spark session, from the second attempt on",
        "a second",
        (
            at_most("on this machine", 0.2, "s"),
            at_most("with modules for a cluster", 0.2, "s"),
        ),
        rounds=7,
    ),
    Row(
        "spark-transfer",
        "Spark engine, 20,000 objects",
        "the in-process engine on the same cores",
        (
            its_time("up", 1.15, "1.41"),
            its_time("down", 1.15, "1.23"),
            its_time("hash", 1.3, "2.13"),
        ),
        is_long=True,
    ),
    Row(
        "planning",
        "planning 1,000,000 objects on Spark",
        "in process",
        (its_time("planning", 2, "4.2"), at_most("worker memory", 200, "MB", "167")),
        rounds=3,
        is_long=True,
    ),
    Row(
        "idle",
        "idle worker, 14 task types, 3 slots",
        "a core",
        (at_most("processor", 3, "% of a core", "31"),),
        rounds=3,
    ),
    # What was measured before there was a table, and is worth keeping an eye on.
    Row(
        "start-up",
        "`perago --help`",
        "a second",
        (at_most("answer", 0.3, "s"),),
        rounds=7,
    ),
    Row(
        "object-cache",
        "download 1,000 × 10 KB, of which the step before changed 100",
        "the same with an empty cache",
        (faster("second step", 3, "3.1"),),
    ),
)
BY_KEY = {row.key: row for row in ROWS}


def chosen(names: str, *, quick: bool) -> frozenset[str]:
    """The keys of the rows that ``ROWS=`` names (patterns, by spaces) or, unnamed, that are due.

    Raises ``ValueError`` for a name that no row has: a typing error must not measure nothing.
    """
    if not names.strip():
        return frozenset(row.key for row in ROWS if not (quick and row.is_long))
    found: set[str] = set()
    for pattern in names.replace(",", " ").split():
        matching = fnmatch.filter(BY_KEY, pattern)
        if not matching:
            raise ValueError(f"no row is called {pattern!r}; the rows are: {', '.join(BY_KEY)}")
        found.update(matching)
    return frozenset(found)


def rounds_of(keys: Sequence[str], *, quick: bool) -> int:
    """How many rounds a test does that measures these rows."""
    wanted = max(BY_KEY[key].rounds for key in keys)
    return min(wanted, 3) if quick else wanted
