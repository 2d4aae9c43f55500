"""Texts for people are cut to a length, and the cut shows."""

from __future__ import annotations

from perago.text import shorten, shorten_line, shorten_line_start, shorten_value


def test_a_text_within_the_limit_is_unchanged() -> None:
    assert shorten("a\nb c", 5) == "a\nb c"
    assert shorten_line("abcde", 5) == shorten_line_start("abcde", 5) == "abcde"


def test_a_longer_text_is_as_long_as_the_limit_with_its_ellipsis() -> None:
    assert shorten("abcdef", 5) == "abcd…"
    assert shorten_line("a\n b\t c  d", 5) == "a b …"


def test_a_text_that_ends_with_what_matters_loses_its_beginning() -> None:
    assert shorten_line_start("Traceback\n  KeyError: 'x'", 14) == "…KeyError: 'x'"


def test_a_value_is_one_line_of_json_or_its_representation() -> None:
    assert shorten_value({"a": ["ü", None]}) == '{"a": ["ü", null]}'
    assert shorten_value({1}) == "{1}"
    assert shorten_value("x" * 100, 4) == '"xx…'
