"""The table of rows, and which of them a run measures."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.bench.table import BY_KEY, ROWS, at_most, chosen, faster, its_time, rounds_of

BENCH = Path(__file__).parents[2] / "bench"


def marked_rows() -> dict[str, list[str]]:
    """The rows that each test of tests/bench says it measures."""
    return {
        node.name: [
            str(ast.literal_eval(argument))
            for mark in node.decorator_list
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.bench"
            for argument in mark.args
        ]
        for file in sorted(BENCH.glob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_row_is_measured_by_exactly_one_test_and_every_test_measures_one() -> None:
    rows = marked_rows()
    assert sorted(row for found in rows.values() for row in found) == sorted(BY_KEY)
    assert [name for name, found in rows.items() if not found] == []


def test_keys_and_figures_have_names_of_their_own() -> None:
    assert len(BY_KEY) == len(ROWS)
    for row in ROWS:
        names = [figure.name for figure in row.figures]
        assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("idle", {"idle"}),
        ("idle publish", {"idle", "publish"}),
        ("attempt-1000*, s3-small", {"attempt-1000", "attempt-1000-second", "attempt-10000"}),
    ],
)
def test_rows_are_chosen_by_name_and_pattern(names: str, found: set[str]) -> None:
    assert chosen(names, quick=True) >= found


def test_without_names_all_rows_are_due_and_the_quick_ones_only_if_asked() -> None:
    assert chosen(" ", quick=False) == BY_KEY.keys()
    quick = chosen("", quick=True)
    assert "idle" in quick
    assert "attempt-10000" not in quick


def test_a_row_that_is_named_runs_however_long_it_takes() -> None:
    assert chosen("attempt-10000", quick=True) == {"attempt-10000"}


def test_a_name_that_no_row_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'idel'; the rows are: attempt-50, "):
        chosen("idel", quick=False)


def test_a_test_does_as_many_rounds_as_its_rows_need() -> None:
    assert rounds_of(["attempt-50"], quick=False) == 9
    assert rounds_of(["attempt-50"], quick=True) == 3
    assert rounds_of(["s3-small", "s3-large"], quick=False) == 5


def test_a_bound_is_kept_as_precisely_as_it_is_shown() -> None:
    assert faster("up", 1.2).is_reached(1.2)
    assert faster("up", 1.2).is_reached(1.1999)
    assert not faster("up", 1.2).is_reached(1.19)
    assert its_time("up", 1.05).is_reached(1.0499)
    assert not its_time("up", 1.05).is_reached(1.06)
    assert at_most("memory", 200, "MB").bound == "≤ 200 MB"
    assert faster("up", 1.75).bound == "≥ 1.75 × as fast"
