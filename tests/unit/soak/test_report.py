"""The soak's report: what it counts, and that a violation is never shown as a success."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from soak.findings import Findings, Happened, Leftovers, Matrix, read_matrix
from soak.report import render, write_report


def some_findings() -> Findings:
    return Findings(
        seed=7,
        minutes=2,
        seconds=130.0,
        workflows={"started": 3, "COMPLETED": 3},
        attempts={"COMPLETED": 3, "FAILED": 1},
        faults={"executor killed": 1, "lakefs page": 2},
        recovery_seconds=[0.5, 7.0, 400.0],
        completed_at=[1.0, 2.0, 90.0],
        happened=[Happened(1.5, "executor killed")],
        matrices={"faults": Matrix(12, 30.0, [])},
    )


def svg_of(page: str) -> list[ET.Element]:
    pieces = [piece.partition("</svg>")[0] for piece in page.split("<svg")[1:]]
    return [ET.fromstring(f"<svg{piece}</svg>") for piece in pieces]  # noqa: S314  our own text


def test_a_soak_without_violations_and_leftovers_is_clean() -> None:
    page = render(some_findings())
    assert "Soak: no violation, nothing left" in page
    assert "3 workflows, 4 attempts, 3 faults" in page
    assert "median 7 s, 95 % within 400 s, longest 400 s" in page


def test_branches_that_garbage_collection_removed_are_no_leftovers() -> None:
    findings = some_findings()
    findings.leftovers = Leftovers(staging_branches_before_gc=4)
    assert findings.is_clean


@pytest.mark.parametrize(
    "change",
    [
        {"violations": ["HEAD is <wrong>"]},
        {"leftovers": Leftovers(processes=1)},
        {"leftovers": Leftovers(folders=1)},
        {"leftovers": Leftovers(staging_branches=1)},
        {"matrices": {"faults": Matrix(1, 1.0, ["a cell"])}},
    ],
)
def test_anything_that_must_not_be_is_shown(change: dict[str, object]) -> None:
    findings = some_findings()
    for name, value in change.items():
        setattr(findings, name, value)
    assert not findings.is_clean
    page = render(findings)
    assert "no violation, nothing left" not in page
    assert "<wrong>" not in page


def test_the_plots_are_well_formed_also_without_data() -> None:
    assert [svg.tag for svg in svg_of(render(some_findings()))] == ["svg"] * 3
    assert svg_of(render(Findings(seed=1, minutes=0)))


def test_the_json_holds_what_the_page_shows(tmp_path: Path) -> None:
    write_report(some_findings(), tmp_path / "build" / "soak")
    found = json.loads((tmp_path / "build" / "soak" / "soak.json").read_text())
    assert found["clean"] is True
    assert found["faults"] == {"executor killed": 1, "lakefs page": 2}
    assert found["matrices"]["faults"]["cells"] == 12
    assert (tmp_path / "build" / "soak" / "soak.html").stat().st_size > 1000


def test_the_results_of_a_matrix_are_read_line_by_line(tmp_path: Path) -> None:
    cells = [
        {"cell": "one", "seconds": 1.25, "attempts": 1, "violations": []},
        {"cell": "two", "seconds": 2.25, "attempts": 2, "violations": ["is left"]},
    ]
    file = tmp_path / "faults.jsonl"
    file.write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    assert read_matrix(file) == Matrix(2, 3.5, ["two: is left"])
