"""Match paths with one glob dialect, for files on disk and for listings of objects.

``*`` and ``?`` stay within a path segment, ``**`` as a whole segment spans any number of them,
``[abc]``, ``[a-z]`` and ``[!abc]`` match one character. Names that begin with a dot are ordinary.
Written by hand because ``fnmatch`` lets ``*`` cross ``/`` and ``glob.translate`` needs Python 3.13.

The time to match grows at most with the length of the path times that of the pattern. What stands
between two stars has a fixed length, so its first occurrence is always a right choice: the
expressions are atomic groups, which the engine leaves once and never tries again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

# A star within a segment. Possessive: what it takes it keeps.
_REST = "[^/]*+"
_SEGMENT_END = r"(?=/|\Z)"


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression that matches whole relative paths."""
    return re.compile("".join(_expressions(pattern.split("/"))), re.DOTALL)


def _expressions(segments: list[str]) -> Iterator[str]:
    """Yield one expression for each run of plain segments, with the ``**`` before it."""
    runs = [(spans, list(run)) for spans, run in groupby(segments, lambda one: one == "**")]
    spanned = False
    for index, (spans, run) in enumerate(runs):
        last = index == len(runs) - 1
        if spans:
            spanned = True
            if last:
                yield ".+"
            continue
        block = "/".join(map(_segment, run)) + ("" if last else "/")
        if not spanned:
            yield block
        elif last:
            # Tried after each slash until the rest of the path is as long as the block.
            yield rf"(?:{_REST}/)*?{block}\Z"
        else:
            yield f"(?>(?:{_REST}/)*?{block})"


def _segment(segment: str) -> str:
    """Translate one segment: the text before the first star, then each star with what follows."""
    first, *others = _between_stars(segment)
    out = [first]
    for index, text in enumerate(others):
        if index == len(others) - 1:
            out.append(f"(?>[^/]*?{text}{_SEGMENT_END})" if text else _REST)
        elif text:
            out.append(f"(?>[^/]*?{text})")
    return "".join(out)


def _between_stars(segment: str) -> list[str]:
    """Translate what stands between the stars of a segment, character by character."""
    parts = [""]
    index = 0
    while index < len(segment):
        char = segment[index]
        index += 1
        if char == "*":
            parts.append("")
        elif char == "?":
            parts[-1] += "[^/]"
        elif char == "[" and (end := _end_of_class(segment, index)) != -1:
            parts[-1] += _character_class(segment[index:end])
            index = end + 1
        else:
            parts[-1] += re.escape(char)
    return parts


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
