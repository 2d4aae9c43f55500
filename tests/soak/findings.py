"""What a soak found, and how the results of the matrices are read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

MATRICES = ("faults", "crashes")


@dataclass(frozen=True)
class Happened:
    """One fault, and when it began."""

    at: float
    kind: str


@dataclass
class Matrix:
    """The cells of a matrix that ran before the fleet."""

    cells: int
    seconds: float
    violations: list[str]


@dataclass
class Leftovers:
    """What is left after everything has settled. Only the first of them may be above zero."""

    staging_branches_before_gc: int = 0
    staging_branches: int = 0
    folders: int = 0
    processes: int = 0


@dataclass
class Findings:
    """The content of the report."""

    seed: int
    minutes: float
    seconds: float = 0.0
    workflows: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    leftovers: Leftovers = field(default_factory=Leftovers)
    # From the end of a step's first failed attempt to the step's completion.
    recovery_seconds: list[float] = field(default_factory=list)
    completed_at: list[float] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    matrices: dict[str, Matrix] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        left = self.leftovers
        broken = any(matrix.violations for matrix in self.matrices.values())
        leftovers = left.staging_branches or left.folders or left.processes
        return not (self.violations or broken or leftovers)


def read_matrix(file: Path) -> Matrix:
    """The results that the matrices' tests have written, one JSON object per line."""
    cells = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = [f"{cell['cell']}: {text}" for cell in cells for text in cell["violations"]]
    return Matrix(len(cells), round(sum(cell["seconds"] for cell in cells), 1), wrong)
