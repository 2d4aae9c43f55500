"""Cut, list and mask text for people: bounded, and always valid UTF-8."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from typing import Any

MASK = "********"
_LONGEST_VALUE = 80
_LONGEST_NAME = 300
_MOST_LINES = 20


def shorten(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters, the last one an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Cut the middle out of a text whose beginning and end matter, like a traceback."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    half = max((limit - len(mark)) // 2, 0)
    return text[: limit - len(mark) - half] + mark + text[len(text) - half :]


def shorten_line(text: str, limit: int) -> str:
    """Put a text on one line and cut it to ``limit`` characters."""
    return shorten(" ".join(text.split()), limit)


def shorten_line_start(text: str, limit: int) -> str:
    """Put a text on one line and cut its beginning, for texts that end with what matters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else "…" + line[1 - limit :]


def shorten_value(value: Any, limit: int = _LONGEST_VALUE) -> str:
    """Write a value as JSON on one line, cut to ``limit`` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = repr(value)
    return shorten(text, limit)


def as_utf8(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode: names on disk and inputs may have some."""
    return text.encode("utf-8", "backslashreplace").decode()


def show_path(path: str) -> str:
    """Write a path or a key as it is, valid as UTF-8 and cut to a length for messages."""
    return shorten(as_utf8(path), _LONGEST_NAME)


def quote_path(path: str) -> str:
    """Write a path or a key in quotes, without control characters and cut for messages."""
    return shorten(repr(path), _LONGEST_NAME)


def first_lines(lines: Iterable[str], most: int = _MOST_LINES) -> tuple[int, str]:
    """Count lines, and return the first of them in order, indented, with how many follow.

    Only the lines that are shown are held in memory.
    """
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for line in lines:
            count += 1
            yield line

    shown = heapq.nsmallest(most, counted())
    if count > most:
        shown.append(f"… and {count - most} more")
    return count, "\n".join(f"  {line}" for line in shown)
