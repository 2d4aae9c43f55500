"""The one glob dialect, for files on disk and for listings of objects alike.

``*`` and ``?`` stay within a path segment, ``**`` as a whole segment spans any number of them,
``[abc]``, ``[a-z]`` and ``[!abc]`` match one character. Names that begin with a dot are ordinary.
Written by hand because ``fnmatch`` lets ``*`` cross ``/`` and ``glob.translate`` needs Python 3.13.
"""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """A regular expression that matches whole relative paths."""
    segments = pattern.split("/")
    parts: list[str] = []
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "**":
            parts.append(".+" if last else "(?:[^/]+/)*")
        else:
            parts.append(_segment(segment) + ("" if last else "/"))
    return re.compile("".join(parts), re.DOTALL)


def _segment(segment: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(segment):
        char = segment[index]
        index += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := segment.find("]", index + 1)) != -1:
            body = segment[index:end]
            negated = body.startswith("!")
            body = body.removeprefix("!").replace("\\", r"\\").replace("^", r"\^")
            body = body.replace("[", r"\[").replace("&", r"\&").replace("~", r"\~")
            out.append(f"(?!/)[{'^' if negated else ''}{body}]")
            index = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def glob_problem(pattern: object) -> str | None:
    """What is wrong with a pattern, or None."""
    if not isinstance(pattern, str) or not pattern:
        return "a path pattern must be a non-empty string"
    segments = pattern.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        return f"{pattern!r}: write a relative path without '.', '..', '//' or a slash at an end"
    if any("**" in segment and segment != "**" for segment in segments):
        return f"{pattern!r}: '**' must be a whole segment, as in 'raw/**/*.json'"
    try:
        compile_glob(pattern)
    except re.error as error:
        return f"{pattern!r}: {error}"
    return None
