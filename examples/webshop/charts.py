"""Charts with no library: SVG for the page, block characters for the terminal.

Every scale begins at zero, so that the length of a bar is its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 820
_INK, _MUTED, _GRID, _BAR, _SOFT = "#24303c", "#66727f", "#e6eaee", "#4878a8", "#a9bfd6"


def towers(values: Sequence[float], *, rows: int = 4) -> list[str]:
    """Upright bars of block characters, three columns each; the highest one fills all rows."""
    most = max(values, default=0) or 1
    # In eighths of a character, as the characters come.
    heights = [round(8 * rows * value / most) for value in values]
    return [
        "".join(2 * _BLOCKS[min(max(height - 8 * row, 0), 8)] + " " for height in heights).rstrip()
        for row in reversed(range(rows))
    ]


def columns(
    values: Sequence[float], labels: Sequence[str], *, axis: str, label: Callable[[float], str]
) -> str:
    """Upright bars over an axis; the highest one carries its value."""
    left, top, bottom, height = 64, 26, 44, 270
    steps = ticks(max(values, default=0))
    scale = (height - top - bottom) / (steps[-1] or 1)
    pitch = (_WIDTH - left) / max(len(values), 1)
    ground = height - bottom
    parts = []
    for step in steps:
        y = ground - step * scale
        parts.append(
            f'<line x1="{left}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>'
        )
        parts.append(_text(left - 8, y + 4, label(step), anchor="end"))
    highest = max(range(len(values)), key=values.__getitem__, default=None)
    for place, (value, name) in enumerate(zip(values, labels, strict=True)):
        x, tall = left + place * pitch, value * scale
        fill = _BAR if place == highest else _SOFT
        parts.append(
            f'<rect x="{x + pitch * 0.14:.1f}" y="{ground - tall:.1f}" width="{pitch * 0.72:.1f}" '
            f'height="{tall:.1f}" rx="2" fill="{fill}">'
            f"<title>{escape(name)}: {escape(label(value))}</title></rect>"
        )
        parts.append(_text(x + pitch / 2, ground + 17, name, anchor="middle"))
        if place == highest:
            y = ground - tall - 7
            parts.append(_text(x + pitch / 2, y, label(value), anchor="middle", color=_INK))
    parts.append(_text(left + (_WIDTH - left) / 2, height - 6, axis, anchor="middle"))
    return _svg(height, parts)


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Lying bars on one common scale, each with its name before it and a note behind it."""
    left, right, pitch = 170, 170, 30
    most = max((value for _, value, _ in rows), default=0) or 1
    parts = []
    for place, (name, value, note) in enumerate(rows):
        y, long = place * pitch, (_WIDTH - left - right) * value / most
        parts.append(_text(left - 12, y + 19, name, anchor="end", color=_INK))
        parts.append(
            f'<rect x="{left}" y="{y + 5}" width="{max(long, 1):.1f}" height="{pitch - 10}" '
            f'rx="2" fill="{_BAR}"/>'
        )
        parts.append(_text(left + max(long, 1) + 10, y + 19, note))
    return _svg(pitch * len(rows) + 4, parts)


def ticks(most: float) -> list[float]:
    """Round steps from zero to just above ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [step * count for count in range(math.ceil(most / step) + 1)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", color: str = _MUTED) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{escape(text)}</text>"


def _svg(height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" font-size="12.5">\n{body}\n</svg>'
