"""The quality report as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from html import escape

from webshop.charts import bars, columns

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Web shop, {day}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #24303c; background: #f6f8fa; margin: 0; }}
main {{ max-width: 820px; margin: 2.5rem auto; padding: 0 1.5rem; }}
h1 {{ font-size: 1.6rem; margin: 0; }}
h2 {{ font-size: 1.05rem; margin: 0 0 .2rem; }}
p {{ color: #66727f; margin: 0 0 1rem; }}
section {{ background: #fff; border: 1px solid #e3e8ed; border-radius: 8px;
  padding: 1.2rem 1.4rem; margin: 1.2rem 0; }}
.tiles {{ display: grid; grid-template-columns: repeat(4, 1fr); gap: 1rem; }}
.tiles b {{ display: block; font-size: 1.5rem; font-weight: 600; }}
.tiles span {{ color: #66727f; }}
svg {{ width: 100%; height: auto; display: block; font-family: inherit; }}
ul {{ list-style: none; margin: 0; padding: 0; }}
.holds::before {{ content: "✓"; color: #2f7d4f; padding-right: .6rem; }}
.fails::before {{ content: "✗"; color: #b3382c; padding-right: .6rem; }}
.fails {{ font-weight: 600; }}
code {{ font-size: .85em; }}
</style>
<main>
<h1>Web shop, {day}</h1>
<p>From commit <code>{commit}</code></p>
<section class="tiles">{tiles}</section>
<section><h2>Revenue by hour</h2><p>What was paid in each hour of the day.</p>{revenue}</section>
<section><h2>From a visit to an order</h2><p>Visits of people, and how far they came.</p>{funnel}
</section>
<section><h2>Lines that do not count</h2>
<p>{uncounted} of {lines} lines of the export ({share}), by the reason.</p>{reasons}</section>
<section><h2>Checks</h2><p>What must hold between the steps of the pipeline.</p><ul>{checks}</ul>
</section>
</main>
</html>
"""


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that the page shows."""

    day: date
    commit: str
    lines: int
    kept: int
    rejected: dict[str, int]
    dropped: dict[str, int]
    revenue_by_hour: list[int]
    sessions: int
    with_cart: int
    with_purchase: int
    checks: dict[str, bool]


def render(numbers: Numbers) -> str:
    """The page."""
    visits, orders = numbers.sessions, numbers.with_purchase
    revenue = sum(numbers.revenue_by_hour)
    uncounted = numbers.lines - numbers.kept
    tiles = {
        "revenue": euros(revenue),
        "orders": f"{orders:,}",
        "visits": f"{visits:,}",
        "of the visits buy": _percent(orders, visits),
    }
    hours = [f"{hour:02}" for hour in range(24)]
    steps = (("visits", visits), ("with a cart", numbers.with_cart), ("with an order", orders))
    reasons = {**numbers.rejected, **numbers.dropped}
    ranked = sorted(reasons.items(), key=lambda item: -item[1])
    return _PAGE.format(
        day=f"{numbers.day:%A} {numbers.day.day} {numbers.day:%B %Y}",
        commit=escape(numbers.commit),
        tiles="".join(
            f"<div><b>{value}</b><span>{name}</span></div>" for name, value in tiles.items()
        ),
        revenue=columns(numbers.revenue_by_hour, hours, axis="hour of the day (UTC)", label=euros),
        funnel=bars([(name, n, f"{n:,}  ({_percent(n, visits)})") for name, n in steps]),
        uncounted=f"{uncounted:,}",
        lines=f"{numbers.lines:,}",
        share=_percent(uncounted, numbers.lines),
        reasons=bars([(why, n, f"{n:,}  ({_percent(n, numbers.lines)})") for why, n in ranked]),
        checks="".join(
            f'<li class="{"holds" if holds else "fails"}">{escape(what)}</li>'
            for what, holds in numbers.checks.items()
        ),
    )


def euros(cents: float) -> str:
    """An amount without its cents, which nobody reads in a total."""
    return f"€{cents / 100:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
