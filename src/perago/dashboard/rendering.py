"""Templates to HTML. Every value is escaped; nothing is marked as safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perago.errors import KINDS, PeragoError
from perago.masking import sendable
from perago.protocol.outcome import bare_reason, told_code, told_hint
from perago.text import as_utf8, shorten, shorten_middle

_TEMPLATES = Path(__file__).parent / "templates"
_LONGEST = 2000
_LONGEST_BLOCK = 20_000
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values. ``is_live``: it may change while it is open in a browser."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    is_live: bool = False


def whole(page: Page, path: str) -> str:
    """Render a page; ``path`` is its own address."""
    return _render(page, "base.html", path)


def part(page: Page) -> str:
    """Render the part of a page that changes."""
    return _render(page, "part.html", "")


def problem(title: str, text: str) -> Page:
    """Build the page for something that is not there or did not work."""
    return Page("problem.html", title, {"problems": [PageProblem(text)]})


def failure(error: PeragoError) -> Page:
    """Build the page for an error of a server."""
    return Page("problem.html", "This could not be read", {"problems": [PageProblem.of(error)]})


@dataclass(frozen=True, slots=True)
class PageProblem:
    """What did not work, and what to do."""

    text: str
    code: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: PeragoError) -> PageProblem:
        return cls(str(error), error.code, error.hint)


def _render(page: Page, layout: str, path: str) -> str:
    own = {"layout": layout, "title": page.title, "path": path, "is_live": page.is_live}
    return _environment().get_template(page.template).render({**page.values, **own})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Secrets that a server or a body put into a text are masked before it is escaped.
        finalize=_shown,
    )
    made.filters.update(
        seconds=show_seconds,
        moment=show_moment,
        stamp=show_stamp,
        size=show_size,
        short=show_short,
        segment=as_segment,
        words=show_words,
        block=show_block,
        tone=tone_of,
        reason=bare_reason,
        code=told_code,
        hint=told_hint,
    )
    made.globals["error_title"] = error_title
    return made


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    # Markup is a text that a template made, whose values went through here already.
    if type(value) is str:
        return as_utf8(sendable(shorten(value, _LONGEST_BLOCK + _LONGEST)))
    return value


def show_seconds(seconds: float | None) -> str:
    """Write a duration as people say it."""
    if seconds is None:
        return _NONE
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def show_moment(moment: datetime | None) -> str:
    """Write a point in time, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if moment else _NONE


def show_stamp(moment: datetime | None) -> str:
    """Write a point in time for programs."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def show_size(count: int) -> str:
    """Write a number of bytes."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def show_short(identifier: str | None) -> str:
    """Write the beginning of a long id; whole, where it is short."""
    text = identifier or ""
    return text if len(text) <= 16 else text[:12]


def show_words(name: str) -> str:
    """Write a name of the code, such as a phase or a status, as words."""
    return name.replace("_", " ").lower()


def show_block(text: str) -> str:
    """Cut a long text in its middle."""
    return shorten_middle(text, _LONGEST_BLOCK)


def as_segment(text: str) -> str:
    """Quote a name as one segment of an address."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


_TONES = {
    "COMPLETED": "good",
    "COMPLETED_WITH_ERRORS": "warn",
    "IN_PROGRESS": "busy",
    "RUNNING": "busy",
    "SCHEDULED": "wait",
    "PAUSED": "wait",
    "FAILED": "bad",
    "FAILED_WITH_TERMINAL_ERROR": "bad",
    "TIMED_OUT": "bad",
    "TERMINATED": "warn",
    "CANCELED": "warn",
}


def tone_of(status: str) -> str:
    """Choose the colour of a status; the word itself is always shown beside it."""
    return _TONES.get(status, "wait")


def error_title(code: str) -> str:
    """Name the error of a code."""
    kind = KINDS.get(code)
    return kind.__name__ if kind else code
