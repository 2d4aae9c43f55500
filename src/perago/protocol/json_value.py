"""Check JSON values before they travel: depth, numbers and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# Conductor takes hundreds of levels; parsers on the way give up between 200 and 1000.
MAX_DEPTH = 100


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether objects and arrays are nested more than ``limit`` levels deep.

    It walks without recursion, so that no depth exhausts the interpreter's stack.
    """
    levels: list[Iterator[Any]] = [iter((value,))]
    while levels:
        item = next(levels[-1], _END)
        if item is _END:
            levels.pop()
        elif isinstance(item, dict | list | tuple):
            if len(levels) > limit:
                return True
            levels.append(iter(item.values() if isinstance(item, dict) else item))
    return False


def encode_json(value: Any) -> bytes:
    """Write a value as strict JSON in UTF-8.

    Raises ``ValueError`` for what Conductor could not read: too many levels, NaN and infinities,
    text that is not Unicode, and values that JSON does not know.
    """
    if is_too_deep(value):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text in it is not valid Unicode: {error.reason}") from None
    except ValueError as error:
        if not str(error).startswith("Out of range float"):
            raise
        raise ValueError("it has NaN or an infinite number, which JSON does not have") from None
    except TypeError as error:
        raise ValueError(str(error)) from error


_END = object()
