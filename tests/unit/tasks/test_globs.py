from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from perago.tasks.globs import compile_glob, glob_problem


def matches(pattern: str, path: str) -> bool:
    assert glob_problem(pattern) is None
    return compile_glob(pattern).fullmatch(path) is not None


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("raw/*.json", "raw/a.json"),
        ("raw/*.json", "raw/.json"),
        ("*", ".hidden"),
        ("a?c", "abc"),
        ("**", "a"),
        ("**", "a/b/c"),
        ("raw/**", "raw/a/b"),
        ("**/x.txt", "x.txt"),
        ("**/x.txt", "a/b/x.txt"),
        ("a/**/b", "a/b"),
        ("a/**/b", "a/x/y/b"),
        ("**/**/x", "x"),
        ("[abc].txt", "b.txt"),
        ("[a-c].txt", "c.txt"),
        ("[!a-c].txt", "d.txt"),
        ("[]a]", "]"),
        ("[!]a]", "b"),
        ("[^a]", "^"),
        ("[a-]", "-"),
        ("[a||b]", "|"),
        ("[&&~~]", "~"),
        ("[\\d]", "d"),
        ("[\\d]", "\\"),
        ("[unclosed", "[unclosed"),
        ("a+b(1).txt", "a+b(1).txt"),
        ("b\u00fccher/*", "b\u00fccher/\u00e4"),
        ("line*", "line\nbreak"),
        ("**/x", "a//x"),  # a key may have empty segments
        ("a/**/b/*/c", "a/b/x/b/y/c"),
        ("**/a/**/b", "a/a/x/b"),
        ("*ab*ab", "abxabab"),
    ],
)
def test_a_pattern_matches_a_path(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("raw/*.json", "raw/a/b.json"),
        ("raw/*.json", "raw/a.json.bak"),
        ("*", "a/b"),
        ("a?c", "a/c"),
        ("a?c", "ac"),
        ("raw/**", "raw"),
        ("raw/**", "rawer/a"),
        ("**/x.txt", "ax.txt"),
        ("[!a].txt", "/.txt"),
        ("[!]a]", "]"),
        ("[\\d]", "7"),
        ("[--/]", "."),  # a slash separates segments, within brackets too
        ("A.txt", "a.txt"),
        ("a.txt", "abtxt"),
    ],
)
def test_a_pattern_does_not_match_a_path(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


@pytest.mark.parametrize(
    "pattern",
    ["", "/a", "a/", "a//b", "./a", "a/../b", "a**", "**.txt", "[z-a]", None, 3, b"a"],
)
def test_a_pattern_that_cannot_match_anything_is_a_problem_that_names_it(pattern: object) -> None:
    problem = glob_problem(pattern)
    assert problem is not None
    assert repr(pattern) in problem


SLOW = [
    ("**/*a*a*a*a*a*a*a*a*b", "a" * 1000),
    ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 1000),
    ("**/a/**/a/**/a/**/a/**/a/**/a/**/b", "a/" * 500 + "a"),
    ("**/**/**/**/**/**/**/**/b", "a/" * 500 + "a"),
    ("**/*/**/*/**/*/**/*/**/*/b", "a/" * 500 + "a"),
    ("[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*7", "a" * 1000),
]


@pytest.mark.parametrize(("pattern", "path"), SLOW)
def test_no_pattern_takes_time_that_explodes_with_its_stars(pattern: str, path: str) -> None:
    matcher = compile_glob(pattern)
    before = time.perf_counter()
    assert not matcher.fullmatch(path)
    assert time.perf_counter() - before < 0.5


def by_definition(pattern: list[str], path: list[str]) -> bool:
    """The dialect as one would define it, with every choice tried."""
    if not pattern:
        return not path
    first, *rest = pattern
    if first == "**" and not rest:
        return bool(path)
    if first == "**":
        return any(by_definition(rest, path[skip:]) for skip in range(len(path) + 1))
    return bool(path) and segment_by_definition(first, path[0]) and by_definition(rest, path[1:])


def segment_by_definition(pattern: str, segment: str) -> bool:
    expression = pattern.replace("*", ".*").replace("?", ".").replace("[!", "[^")
    return re.fullmatch(expression, segment) is not None


segments = some.lists(some.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"]), min_size=1)
# Two stars in a row are refused within a segment.
patterns = some.lists(
    some.just("**") | segments.map("".join).filter(lambda text: "**" not in text),
    min_size=1,
    max_size=6,
)
paths = some.lists(some.text("ab", min_size=1, max_size=6), min_size=1, max_size=6)


@given(patterns, paths)
@example(["**", "a", "**", "*b*a"], ["a", "a", "bba"])
def test_a_pattern_matches_what_its_definition_matches(pattern: list[str], path: list[str]) -> None:
    expected = by_definition(pattern, path)
    assert matches("/".join(pattern), "/".join(path)) == expected
