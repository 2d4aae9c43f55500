from __future__ import annotations

import pytest

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
