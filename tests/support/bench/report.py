"""The report of ``make bench``: JSON, the Markdown table of docs/performance.md, and plots.

Run as a module after the measurements. It always writes to ``build/bench``; with ``--docs`` it
also brings the page and its plots up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.bench import plots
from support.bench.results import BENCH, ROOT, Book, Measured, Results
from support.bench.rounds import Value, middle
from support.bench.table import ROWS, Figure, Row

PAGE = ROOT / "docs" / "performance.md"
# Beside the page: what it was made of, and its plots.
KEPT = ROOT / "docs" / "performance"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_NOTHING = "not measured yet"


def number(value: float) -> str:
    """At most three digits that matter, and never an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else "0"


def measured_text(figure: Figure, value: Value) -> str:
    unit = "×" if figure.unit.startswith("×") else figure.unit
    spread = ""
    if value.low is not None and value.high is not None:
        spread = f" ({number(value.low)} to {number(value.high)})"
    return f"{number(value.value)} {unit}{spread}"


def table(results: Results) -> str:
    """The table, with a line per figure; the row itself is told in the first of them."""
    lines = [
        "| row | work | beside | figure | earlier | to reach | measured | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        measured = results.rows.get(row.key)
        told, why = [f"`{row.key}`", row.work, row.beside], _reasons(measured)
        for figure in row.figures:
            found = "<br>".join([_found(figure, measured), *why])
            cells = [figure.name, figure.earlier, figure.bound, found, _verdict(figure, measured)]
            lines.append(f"| {' | '.join([*told, *cells])} |")
            told, why = ["", "", ""], []
    return "\n".join(lines) + "\n"


def _reasons(measured: Measured | None) -> list[str]:
    """Why a row failed, and why which peers are missing: told in the table, not beside it."""
    if measured is None:
        return []
    failure = [_plain(measured.failure)] if measured.failure is not None else []
    absent = [f"without {name}: {_plain(why)}" for name, why in measured.absent.items()]
    return failure + absent


def _found(figure: Figure, measured: Measured | None) -> str:
    if measured is None:
        return _NOTHING
    if measured.failure is not None:
        return "failed"
    value = measured.figures.get(figure.name)
    return measured_text(figure, value) if value else "no peer"


def _verdict(figure: Figure, measured: Measured | None) -> str:
    value = measured.figures.get(figure.name) if measured else None
    if value is None:
        return ""
    return "reached" if figure.is_reached(value.value) else "missed"


def details(results: Results) -> str:
    """What each contestant took, and when and where it was measured."""
    parts = []
    for row in ROWS:
        measured = results.rows.get(row.key)
        if measured is None:
            continue
        parts.append(f"### {row.key}\n")
        parts.append(f"{row.work}. {_circumstances(measured)}\n")
        if measured.samples:
            parts.append(_samples(row, measured))
            parts.append(f"![{row.key}](performance/{row.key}.svg)\n")
    return "\n".join(parts)


def _circumstances(measured: Measured) -> str:
    said = f"Version {measured.version}, {measured.measured_at}"
    if measured.rounds:
        said += f", {measured.rounds} round{'s' if measured.rounds > 1 else ''}"
    if machine := measured.machine:
        said += (
            f", {machine.cores} cores with a load of {machine.load:g}, {machine.system}, "
            f"Python {machine.python}"
        )
    return f"{said}."


def _samples(row: Row, measured: Measured) -> str:
    lines = ["| | | | median | smallest | largest |", "|---|---|---|---|---|---|"]
    for aspect, found in measured.samples.items():
        for name, values in found.items():
            each = middle(values)
            spread = f"{number(each.low or 0)} | {number(each.high or 0)}"
            unit = plots.unit_of(aspect, row)
            lines.append(f"| {aspect} | {name} | {unit} | {number(each.value)} | {spread} |")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """An error's first line, as one that Markdown takes for text."""
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    # Also within a table, where a bar would end the cell.
    return "`" + first.replace("`", "'").replace("|", "/")[:200] + "`"


def generated(results: Results) -> str:
    """Everything between the marks of the page."""
    parts = [table(results)]
    if _has_values(results):
        parts.append("![what is reached](performance/overview.svg)\n")
    parts.append("## Row by row\n")
    parts.append(details(results) or "Nothing has been measured yet.\n")
    return "\n".join(parts)


def _has_values(results: Results) -> bool:
    return any(measured.figures for measured in results.rows.values())


def rewrite(page: str, results: Results) -> str:
    """A page with its generated part replaced."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN} … {_END}")
    return f"{before}{_BEGIN}\n\n{generated(results)}\n{_END}{after}"


def drawn(results: Results) -> dict[str, str]:
    """The plots by file name: one per row that has samples, and the overview."""
    found = {
        f"{row.key}.svg": plots.row_plot(row, results.rows[row.key].samples)
        for row in ROWS
        if row.key in results.rows and results.rows[row.key].samples
    }
    if _has_values(results):
        found["overview.svg"] = plots.overview(results)
    return found


def write(results: Results, folder: Path) -> None:
    """Write the results and their plots into a folder; plots of nothing are removed."""
    results.save(folder / "results.json")
    pictures = drawn(results)
    for old in folder.glob("*.svg"):
        if old.name not in pictures:
            old.unlink()
    for name, text in pictures.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: list[str], bench: Path = BENCH, page: Path = PAGE, kept: Path = KEPT) -> int:
    results = Book(bench).results()
    write(results, bench)
    (bench / "table.md").write_text(generated(results), encoding="utf-8")
    print(summary(results))
    print(f"{bench / 'results.json'}, table.md and plots")
    if "--docs" in arguments:
        everything = Results.load(kept / "results.json").newer(results)
        write(everything, kept)
        text = rewrite(page.read_text(encoding="utf-8"), everything)
        page.write_text(text, encoding="utf-8")
        print(f"{page} has {len(results.rows)} rows of this run")
    return 0


def summary(results: Results) -> str:
    """What a terminal shows: a line per figure that was measured, and what is missing."""
    lines = []
    for row in ROWS:
        measured = results.rows.get(row.key)
        if measured is None:
            continue
        for figure in row.figures:
            found, verdict = _found(figure, measured), _verdict(figure, measured)
            told = f"{figure.bound:>28}  {found} {verdict}".rstrip()
            lines.append(f"{row.key:20} {figure.name:20} {told}")
        lines += [f"{row.key:20} without {name}: {why}" for name, why in measured.absent.items()]
        if measured.failure is not None:
            lines.append(f"{row.key:20} failed: {measured.failure.splitlines()[0]}")
    return "\n".join(lines) or "nothing was measured"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
