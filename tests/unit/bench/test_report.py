"""The report: what the table says of a row that was measured, missed, failed or never run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from support.bench import report
from support.bench.plots import Bar, bar_plot, unit_of
from support.bench.results import Book, Measured, Results
from support.bench.rounds import Contest, Value, hold
from support.bench.table import BY_KEY, OURS, ROWS

_PAGE = "# Page\n\n<!-- measured: begin -->\nreplaced\n<!-- measured: end -->\n\nThe end.\n"


def a_contest() -> Contest:
    return hold(3, {OURS: lambda n: {"down": 1.0 + n}, "lakectl": lambda n: {"down": 3.0 + n}})


def some_results(folder: Path) -> Results:
    book = Book(folder)
    contest = a_contest()
    contest.absent["rclone"] = "could not build <it>\nwith | many lines"
    book.record("download-2000", contest, {"down": contest.ratio("lakectl", OURS, "down")})
    book.record("idle", Contest(), {"processor": Value(value=31.0, low=30.0, high=32.5)})
    book.record("upload-2000", Contest(absent={"lakectl": "no Go | gone"}), {"up": None})
    book.fail("publish", "AssertionError: the calls are others\nmore")
    return book.results()


def line_of(text: str, key: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| `{key}` |")]
    return line


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  our own text


def test_a_row_that_was_not_measured_says_so_and_claims_nothing() -> None:
    text = report.table(Results())
    assert text.count("not measured yet") == sum(len(row.figures) for row in ROWS)
    assert "reached" not in text
    assert "missed" not in text
    assert line_of(text, "idle") == (
        "| `idle` | idle worker, 14 task types, 3 slots | a core | processor | 31 | "
        "≤ 3 % of a core | not measured yet |  |"
    )


def test_each_row_tells_its_figure_its_spread_and_whether_it_is_reached(tmp_path: Path) -> None:
    text = report.table(some_results(tmp_path))
    assert line_of(text, "download-2000").endswith(
        "| 2 × (1.67 to 3)<br>without rclone: `could not build <it>` | reached |"
    )
    assert line_of(text, "idle").endswith("| 31 % of a core (30 to 32.5) | missed |")
    assert line_of(text, "upload-2000").endswith(
        "| no peer<br>without lakectl: `no Go / gone` |  |"
    )
    assert line_of(text, "publish").endswith(
        "| failed<br>`AssertionError: the calls are others` |  |"
    )


def test_a_row_with_several_figures_has_a_line_for_each() -> None:
    found = Measured(measured_at="now", version="1", figures={"up": Value(value=3.2)})
    text = report.table(Results(rows={"large-object": found}))
    assert line_of(text, "large-object").endswith("| 3.2 × | reached |")
    lines = text.splitlines()
    place = lines.index(line_of(text, "large-object"))
    assert lines[place + 1] == "|  |  |  | down | 0.43 | ≥ 1.1 × as fast | no peer |  |"
    assert lines[place + 2] == "|  |  |  | memory | – | ≤ 200 MB | no peer |  |"


def test_a_terminal_is_told_of_missing_peers_and_failures_too(tmp_path: Path) -> None:
    results = some_results(tmp_path)
    told = report.summary(results)
    assert "without rclone: could not build <it>" in told
    assert "failed: AssertionError: the calls are others" in told
    assert report.summary(Results()) == "nothing was measured"


def test_the_samples_of_all_contestants_are_shown(tmp_path: Path) -> None:
    text = report.details(some_results(tmp_path))
    assert f"| down | {OURS} | s | 2 | 1 | 3 |" in text
    assert "| down | lakectl | s | 4 | 3 | 5 |" in text
    assert "3 rounds" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.0123, "0.0123"), (1.25, "1.25"), (99.96, "100"), (123456.7, "123,457")],
)
def test_numbers_have_at_most_three_digits_and_no_exponent(value: float, shown: str) -> None:
    assert report.number(value) == shown


def test_only_the_generated_part_of_a_page_is_replaced(tmp_path: Path) -> None:
    once = report.rewrite(_PAGE, some_results(tmp_path))
    assert once.startswith("# Page\n\n<!-- measured: begin -->\n\n| row |")
    assert once.endswith("<!-- measured: end -->\n\nThe end.\n")
    assert "replaced" not in once
    assert report.rewrite(once, some_results(tmp_path)) == once
    with pytest.raises(ValueError, match="the page has no"):
        report.rewrite("# Page\n", Results())


def test_the_report_is_json_a_table_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some_results(tmp_path)
    (tmp_path / "gone.svg").write_text("of a row that has no samples any more")
    assert report.main([], tmp_path) == 0
    stored = json.loads((tmp_path / "results.json").read_text())
    assert list(stored["rows"]) == ["download-2000", "upload-2000", "publish", "idle"]
    assert stored["rows"]["download-2000"]["samples"]["down"][OURS] == [1.0, 2.0, 3.0]
    assert stored["rows"]["publish"]["failure"].startswith("AssertionError")
    assert (tmp_path / "table.md").read_text().startswith("| row |")
    assert {file.name for file in tmp_path.glob("*.svg")} == {"download-2000.svg", "overview.svg"}
    assert "reached" in capsys.readouterr().out


def test_the_page_keeps_rows_that_this_run_did_not_measure(tmp_path: Path) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "page"
    page.write_text(_PAGE)
    earlier = {"tasks": Value(value=1.3)}
    rows = {"tiny-tasks": Measured(measured_at="before", version="0", figures=earlier)}
    Results(rows=rows).save(kept / "results.json")
    some_results(tmp_path / "bench")
    report.main(["--docs"], tmp_path / "bench", page, kept)
    text = page.read_text()
    assert "1.3 ×" in line_of(text, "tiny-tasks")
    assert "| 2 × " in line_of(text, "download-2000")
    assert (kept / "download-2000.svg").exists()
    assert Results.load(kept / "results.json").rows.keys() >= {"tiny-tasks", "idle"}


def test_the_page_of_the_repository_says_what_its_results_say() -> None:
    results = Results.load(report.KEPT / "results.json")
    text = report.PAGE.read_text(encoding="utf-8")
    assert text == report.rewrite(text, results), "run `python -m support.bench.report --docs`"
    pictures = report.drawn(results)
    assert {file.name for file in report.KEPT.glob("*.svg")} == pictures.keys()
    for name, picture in pictures.items():
        assert (report.KEPT / name).read_text(encoding="utf-8") == picture


def test_plots_are_well_formed_and_hold_every_bar(tmp_path: Path) -> None:
    results = some_results(tmp_path)
    for picture in report.drawn(results).values():
        assert parsed(picture).tag.endswith("svg")
    bars = parsed(report.drawn(results)["download-2000.svg"])
    kinds = [one.get("class") for one in bars.iter() if one.tag.endswith("rect")]
    assert kinds == [None, "ours", "peer"]
    text = bar_plot("a < b", [Bar("x & y", Value(value=0.0))])
    assert parsed(text).findtext("{http://www.w3.org/2000/svg}title") == "a < b"
    assert parsed(bar_plot("nothing", [])) is not None


def test_bars_of_different_units_have_different_scales() -> None:
    bars = [
        Bar("a", Value(value=2.0)),
        Bar("b", Value(value=4.0)),
        Bar("c", Value(value=900), unit="MB"),
    ]
    drawing = parsed(bar_plot("all", bars))
    widths = [float(one.get("width") or 0) for one in drawing.iter() if one.get("class") == "peer"]
    assert widths[1] == widths[2] == 2 * widths[0]
    assert unit_of("MB", BY_KEY["idle"]) == "MB"
    assert unit_of("executors", BY_KEY["idle"]) == "%"
    assert unit_of("up", BY_KEY["large-object"]) == "s"


def test_the_overview_shows_who_missed(tmp_path: Path) -> None:
    drawing = parsed(report.drawn(some_results(tmp_path))["overview.svg"])
    kinds = [one.get("class") for one in drawing.iter() if one.tag.endswith("rect")]
    assert kinds == [None, "ours", "missed"]


def test_a_figure_that_a_row_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the row idle has no figure wrong"):
        Book(tmp_path).record("idle", Contest(), {"wrong": Value(value=1.0)})


def test_a_row_that_is_measured_again_replaces_what_it_was(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.fail("idle", "broken")
    book.record("idle", Contest(), {"processor": Value(value=1.0)})
    found = book.results().rows
    assert list(found) == ["idle"]
    assert found["idle"].failure is None
    assert BY_KEY["idle"].figure("processor").is_reached(found["idle"].figures["processor"].value)
