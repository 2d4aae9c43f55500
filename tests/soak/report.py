"""The report of a soak: JSON for programs, and one HTML page with plots for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from itertools import pairwise
from pathlib import Path

from soak.findings import Findings

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 220, 48, 28
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .8rem .2rem 0; text-align: left }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #555 }
.good { color: #176b37 } .bad { color: #a01818 } pre { white-space: pre-wrap }
"""


def write_report(findings: Findings, folder: Path) -> None:
    """Write ``soak.json`` and ``soak.html``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {**asdict(findings), "clean": findings.is_clean}
    (folder / "soak.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "soak.html").write_text(render(findings), encoding="utf-8")


def render(findings: Findings) -> str:
    """Build the page."""
    verdict = "no violation, nothing left" if findings.is_clean else "violations or leftovers"
    kind = "good" if findings.is_clean else "bad"
    started = findings.workflows.get("started", 0)
    parts = [
        f"<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>Soak: {verdict}</title>",
        f"<style>{_STYLE}</style><h1>Soak: <span class='{kind}'>{verdict}</span></h1>",
        f"<p>{findings.minutes:g} minutes of faults, seed {findings.seed}; "
        f"{started} workflows, {sum(findings.attempts.values())} attempts, "
        f"{sum(findings.faults.values())} faults; {findings.seconds:.0f} s in all.</p>",
        "<h2>Workflows completed, and faults</h2>",
        _timeline(findings.completed_at, [item.at for item in findings.happened]),
        "<h2>Faults</h2>",
        _bars(findings.faults),
        "<h2>Seconds from a step's first failure to its completion</h2>",
        _bars(_histogram(findings.recovery_seconds)),
        f"<p>{_quantiles(findings.recovery_seconds)}</p>",
        "<h2>Counts</h2>",
        _table("workflows", findings.workflows),
        _table("attempts", findings.attempts),
        _table("why attempts did not complete", findings.reasons),
        _table("leftovers", asdict(findings.leftovers)),
        _matrices(findings),
        "<h2>Violations</h2>",
        _violations([*findings.violations, *_of_matrices(findings)]),
    ]
    return "\n".join(parts) + "\n"


def _of_matrices(findings: Findings) -> Iterable[str]:
    return (text for matrix in findings.matrices.values() for text in matrix.violations)


def _matrices(findings: Findings) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{item.cells}</td><td>{item.seconds:.0f} s</td>"
        f"<td>{len(item.violations)}</td></tr>"
        for name, item in findings.matrices.items()
    )
    head = "<tr><th>matrix</th><th>cells</th><th>time</th><th>violations</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _table(name: str, counts: Mapping[str, int]) -> str:
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{value}</td></tr>" for key, value in counts.items()
    )
    return f"<table><tr><th>{escape(name)}</th><th></th></tr>{rows}</table>"


def _violations(texts: Sequence[str]) -> str:
    if not texts:
        return "<p class='good'>None.</p>"
    return "".join(f"<pre class='bad'>{escape(text)}</pre>" for text in texts)


def _timeline(completed: Sequence[float], faults: Sequence[float]) -> str:
    """A line of completed workflows over time, with a tick for every fault."""
    end = max([*completed, *faults, 1.0])
    most = max(len(completed), 1)

    def x(at: float) -> float:
        return _LEFT + at / end * (_WIDTH - _LEFT)

    def y(count: float) -> float:
        return (_HEIGHT - _BOTTOM) * (1 - count / most) + 4

    points = [(x(0), y(0)), *((x(at), y(n)) for n, at in enumerate(completed, 1))]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    floor = _HEIGHT - _BOTTOM + 4
    ticks = "".join(
        f"<line x1='{x(at):.1f}' x2='{x(at):.1f}' y1='{floor}' y2='{floor + 6}' stroke='#c33'/>"
        for at in faults
    )
    labels = "".join(
        f"<text x='{x(end * part):.0f}' y='{_HEIGHT - 4}' text-anchor='{anchor}'>"
        f"{end * part / 60:.1f} min</text>"
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}'>"
        f"<line x1='{_LEFT}' x2='{_WIDTH}' y1='{floor}' y2='{floor}' stroke='#999'/>"
        f"<polyline points='{line}' fill='none' stroke='#2563a8' stroke-width='1.5'/>{ticks}"
        f"{labels}<text x='0' y='14'>{len(completed)}</text><text x='0' y='{floor}'>0</text></svg>"
    )


def _bars(counts: Mapping[str, int]) -> str:
    """Horizontal bars with their numbers."""
    if not counts:
        return "<p>None.</p>"
    most, row = max(counts.values()), 20
    bars = "".join(
        f"<text x='200' y='{n * row + 14}' text-anchor='end'>{escape(name)}</text>"
        f"<rect x='208' y='{n * row + 4}' height='13' fill='#2563a8' "
        f"width='{count / max(most, 1) * 440:.1f}'/>"
        f"<text x='{214 + count / max(most, 1) * 440:.1f}' y='{n * row + 14}'>{count}</text>"
        for n, (name, count) in enumerate(sorted(counts.items(), key=_by_number))
    )
    return f"<svg viewBox='0 0 {_WIDTH} {len(counts) * row + 6}'>{bars}</svg>"


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Classes of numbers in their order, other names by theirs."""
    number = item[0].split()[0]
    return (float(number) if number.replace(".", "").isdigit() else math.inf, item[0])


def _histogram(values: Sequence[float]) -> dict[str, int]:
    edges = [0, 1, 2, 5, 10, 20, 30, 60, 120, 300, math.inf]
    counts: dict[str, int] = {}
    for low, high in pairwise(edges):
        name = f"{low} to {high} s" if math.isfinite(high) else f"{low} s and more"
        counts[name] = sum(low <= value < high for value in values)
    last = max((n for n, count in enumerate(counts.values()) if count), default=0)
    return dict(list(counts.items())[: last + 1])


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "No step failed."
    ordered = sorted(values)

    def at(part: float) -> float:
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    return (
        f"{len(ordered)} steps were retried; median {at(0.5):g} s, 95 % within {at(0.95):g} s, "
        f"longest {ordered[-1]:g} s."
    )
