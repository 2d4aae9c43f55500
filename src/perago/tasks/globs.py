"""Match paths with one glob dialect, for files on disk and for listings of objects.

``*`` and ``?`` stay within a path segment, ``**`` as a whole segment spans any number of them,
``[abc]``, ``[a-z]`` and ``[!abc]`` match one character. Names that begin with a dot are ordinary.
Written by hand because ``fnmatch`` lets ``*`` cross ``/`` and ``glob.translate`` needs Python 3.13.
"""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression that matches whole relative paths."""
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
        elif char == "[" and (end := _end_of_class(segment, index)) != -1:
            out.append(_character_class(segment[index:end]))
            index = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _end_of_class(segment: str, start: int) -> int:
    """Find where the class closes, -1 if nowhere. A ``]`` in the first place is literal."""
    first = start + 1 if segment.startswith("!", start) else start
    return segment.find("]", first + 1)


def _character_class(body: str) -> str:
    """Escape each character: most that are literal in a glob have a meaning in an expression."""
    negated, rest = body.startswith("!"), body.removeprefix("!")
    out: list[str] = []
    index = 0
    while index < len(rest):
        if rest[index + 1 : index + 2] == "-" and index + 2 < len(rest):
            out.append(f"{re.escape(rest[index])}-{re.escape(rest[index + 2])}")
            index += 3
        else:
            out.append(re.escape(rest[index]))
            index += 1
    return f"(?!/)[{'^' if negated else ''}{''.join(out)}]"


def relative_path_problem(path: object) -> str | None:
    """Explain what is wrong with a relative path; None if nothing is."""
    if not isinstance(path, str) or not path:
        return f"a path must be a non-empty string, not {path!r}"
    if any(segment in {"", ".", ".."} for segment in path.split("/")):
        return f"{path!r}: write a relative path without '.', '..', '//' or a slash at an end"
    return None


def glob_problem(pattern: object) -> str | None:
    """Explain what is wrong with a pattern; None if nothing is."""
    if problem := relative_path_problem(pattern):
        return problem
    text = str(pattern)
    if any("**" in segment and segment != "**" for segment in text.split("/")):
        return f"{pattern!r}: '**' must be a whole segment, as in 'raw/**/*.json'"
    try:
        compile_glob(text)
    except re.error as error:
        return f"{pattern!r}: {error}"
    return None
