"""What may stand in a log line: plain values, no secret, nothing that could fake another line."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from structlog.typing import EventDict, WrappedLogger

_MASK = "********"
_DEEPEST = 8
# Blocks of text that people want to read line by line.
_BLOCKS = ("exception", "trace", "stack")


class Masking:
    """A processor that makes values plain and masks secrets in them, as a second line of defence.

    Nothing should log a secret in the first place: they are ``SecretStr`` wherever they are kept.
    """

    def __init__(self, secrets: Iterable[tuple[str | None, str]]) -> None:
        found = {spelling for key, secret in secrets for spelling in _spellings(key, secret)}
        # Longest first, so that no spelling is half replaced by a shorter one.
        self._spellings = sorted(filter(None, found), key=len, reverse=True)

    def __call__(self, logger: WrappedLogger, method: str, values: EventDict) -> EventDict:
        return {key: self._plain(value, 0) for key, value in values.items()}

    def _plain(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else repr(value)
        if isinstance(value, str):
            return self._mask(value)
        if depth < _DEEPEST and isinstance(value, Mapping):
            return {
                self._mask(str(key)): self._plain(item, depth + 1) for key, item in value.items()
            }
        if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
            return [self._plain(item, depth + 1) for item in value]
        return self._mask(_described(value))

    def _mask(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, _MASK)
        return str(text)


def _described(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  an object that cannot be shown must not lose the line
        return f"<{type(value).__name__}>"


def _spellings(key: str | None, secret: str) -> set[str]:
    """The forms in which a secret gets into texts: itself, quoted, in a URL, in Basic auth."""
    forms = {
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        quote(secret, safe=""),
        quote_plus(secret),
    }
    if key is not None:
        forms.add(base64.b64encode(f"{key}:{secret}".encode()).decode())
    return forms


def render_json(_: WrappedLogger, __: str, values: EventDict) -> str:
    """One JSON object on one line; readable, but without any character that is not printable."""
    text = json.dumps(values, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def console_values(_: WrappedLogger, __: str, values: EventDict) -> EventDict:
    """Escape what could end the line or steer the terminal; a traceback becomes a marked block."""
    blocks = [str(values.pop(key)) for key in _BLOCKS if values.get(key)]
    shown: EventDict = {key: _one_line(value) for key, value in values.items()}
    lines = [line for block in blocks for line in block.rstrip("\n").split("\n")]
    if lines:
        shown["exception"] = "\n".join(f"  | {_escaped(line)}" for line in lines)
    return shown


def _one_line(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _escaped(value if isinstance(value, str) else _described(value))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
