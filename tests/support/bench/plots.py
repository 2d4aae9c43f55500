"""Plots as SVG, written by hand: bars are all that the report needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from support.bench.results import Results
from support.bench.rounds import Samples, Value, middle
from support.bench.table import OURS, ROWS, Row

_WIDTH, _LABELS, _NUMBERS, _LINE = 820, 300, 90, 22
_TOP, _BOTTOM = 34, 10
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:bold}"
    ".ours{fill:#2b6cb0}.peer{fill:#a0aec0}.missed{fill:#c05621}"
    ".spread{stroke:#333;stroke-width:1}.bound{stroke:#333;stroke-dasharray:4 3}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its length is the value, the line on it the spread."""

    label: str
    value: Value
    kind: str = "peer"
    # Bars of one unit have one scale.
    unit: str = "s"


def row_plot(row: Row, samples: dict[str, Samples]) -> str:
    """The medians of all contestants, aspect by aspect."""
    bars = [
        Bar(
            f"{aspect}, {name}",
            middle(values),
            "ours" if name.startswith(OURS) else "peer",
            unit_of(aspect, row),
        )
        for aspect, found in samples.items()
        for name, values in found.items()
    ]
    return bar_plot(row.work, bars)


def unit_of(aspect: str, row: Row) -> str:
    """Seconds, unless the aspect is memory or the row is about the processor."""
    if aspect == "MB":
        return "MB"
    return "%" if row.figures[0].unit.startswith("%") else "s"


def bar_plot(title: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars from zero."""
    longest: dict[str, float] = {}
    for bar in bars:
        end = bar.value.high or bar.value.value
        longest[bar.unit] = max(longest.get(bar.unit, 0.0), end)
    parts = []
    for place, bar in enumerate(bars):
        y = _TOP + place * _LINE
        scale = (_WIDTH - _LABELS - _NUMBERS) / (longest[bar.unit] or 1.0)
        length = bar.value.value * scale
        parts.append(_text(_LABELS - 6, y + 13, bar.label, anchor="end"))
        parts.append(
            f"<rect class='{bar.kind}' x='{_LABELS}' y='{y + 2}' width='{length:.1f}' height='14'/>"
        )
        end = _LABELS + (bar.value.high or bar.value.value) * scale
        if bar.value.low is not None and bar.value.high is not None:
            start = _LABELS + bar.value.low * scale
            parts.append(
                f"<line class='spread' x1='{start:.1f}' x2='{end:.1f}' y1='{y + 9}' y2='{y + 9}'/>"
            )
        parts.append(_text(end + 6, y + 13, f"{bar.value.value:.3g} {bar.unit}"))
    return _svg(title, parts, len(bars))


def overview(results: Results) -> str:
    """How far each figure is from its bound: bars to the right have reached it.

    On a logarithmic scale, so that twice as good and half as good are equally far from the line.
    """
    found = [
        (f"{row.key}: {figure.name}", _distance(value.value, figure.reach, figure.is_floor))
        for row in ROWS
        if (measured := results.rows.get(row.key)) is not None
        for figure in row.figures
        if (value := measured.figures.get(figure.name)) is not None
    ]
    reach = max((abs(distance) for _, distance in found), default=1.0) or 1.0
    middle_x = _LABELS + (_WIDTH - _LABELS - _NUMBERS) / 2
    scale = (_WIDTH - _LABELS - _NUMBERS) / 2 / reach
    parts = []
    for place, (label, distance) in enumerate(found):
        y = _TOP + place * _LINE
        parts.append(_text(_LABELS - 6, y + 13, label, anchor="end"))
        kind, length = ("ours" if distance >= 0 else "missed"), abs(distance) * scale
        x = middle_x if distance >= 0 else middle_x - length
        parts.append(
            f"<rect class='{kind}' x='{x:.1f}' y='{y + 2}' width='{length:.1f}' height='14'/>"
        )
        parts.append(_text(_WIDTH - _NUMBERS + 6, y + 13, f"{2**distance:.2f} ×"))
    bottom = _TOP + len(found) * _LINE
    parts.append(
        f"<line class='bound' x1='{middle_x}' x2='{middle_x}' y1='{_TOP - 4}' y2='{bottom}'/>"
    )
    return _svg("Measured beside what is to be reached (the dashed line)", parts, len(found))


def _distance(value: float, reach: float, is_floor: bool) -> float:
    """Doublings by which a value is better than its bound; negative where it is worse."""
    better = value / reach if is_floor else reach / max(value, reach / 1024)
    return math.log2(max(better, 1 / 1024))


def _svg(title: str, parts: Sequence[str], lines: int) -> str:
    height = _TOP + lines * _LINE + _BOTTOM
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' "
            f"width='{_WIDTH}' height='{height}' role='img'>",
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f"<rect width='{_WIDTH}' height='{height}' fill='#fff'/>",
            _text(8, 20, title, kind="title"),
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    attributes = f" class='{kind}'" if kind else ""
    return f"<text x='{x:.1f}' y='{y}' text-anchor='{anchor}'{attributes}>{escape(text)}</text>"
