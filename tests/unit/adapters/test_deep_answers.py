"""Answers that are nested more deeply than Python can parse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago import http_errors
from perago.http_errors import parse_deep_json

VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\,:é'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\a'), inner),
    max_leaves=40,
)


def cut(value: Any, levels: int) -> Any:
    """What is left of a value of which so many levels are kept."""
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value]
    return {key: cut(item, levels - 1) for key, item in value.items()}


@given(value=VALUES, levels=st.integers(0, 5), spaces=st.booleans())
def test_null_stands_for_what_is_too_deep(value: Any, levels: int, spaces: bool) -> None:
    text = json.dumps(value, indent=1 if spaces else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_errors, "_DEEPEST", levels)
        assert json.loads(http_errors._cut(text.encode())) == cut(value, levels)


def test_a_deep_answer_is_read_to_its_deepest_level() -> None:
    found = parse_deep_json(b'{"input": %s%s, "last": [1]}' % (b"[" * 100_000, b"]" * 100_000))
    assert found["last"] == [1]
    depth, inner = 1, found["input"]
    while inner is not None:
        depth, inner = depth + 1, inner[0]
    assert depth == http_errors._DEEPEST


@pytest.mark.parametrize("body", [b"[" * 100_000, b"]" * 100_000 + b"[" * 100_000])
def test_one_that_does_not_end_is_not_json(body: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        parse_deep_json(body)
