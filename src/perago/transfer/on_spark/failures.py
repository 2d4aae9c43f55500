"""Encode an error as text in a task of a Spark job; raise the same error in the worker."""

from __future__ import annotations

import builtins
import json
from typing import Any

from perago import errors


def encode(error: Exception) -> str:
    """Encode the class and the text of an error, as JSON."""
    fields: dict[str, Any] = {"kind": type(error).__name__, "text": str(error)}
    if isinstance(error, errors.PeragoError):
        fields["hint"] = error.hint
    elif isinstance(error, OSError) and error.errno is not None:
        fields["system"] = [error.errno, error.strerror, _name(error.filename)]
    return json.dumps(fields)


def decode(text: str) -> Exception:
    """Build the error that ``encode`` was given, with the same class and text.

    An error of an unknown class becomes a ``RuntimeError`` whose text names the class.
    """
    fields = json.loads(text)
    kind = getattr(errors, fields["kind"], None)
    if isinstance(kind, type) and issubclass(kind, errors.PeragoError):
        return kind(fields["text"], hint=fields["hint"])
    if "system" in fields:
        number, reason, name = fields["system"]
        # Python chooses FileNotFoundError, PermissionError and so on by the number.
        return OSError(number, reason, name)
    kind = getattr(builtins, fields["kind"], None)
    if isinstance(kind, type) and issubclass(kind, ValueError | TypeError | RuntimeError):
        return _build_builtin(kind, fields["text"])
    return RuntimeError(f"{fields['kind']}: {fields['text']}")


def _build_builtin(kind: type[Exception], text: str) -> Exception:
    try:
        return kind(text)
    except TypeError:  # such as UnicodeDecodeError, which takes more than a text
        return RuntimeError(f"{kind.__name__}: {text}")


def _name(name: object) -> str | None:
    return None if name is None else str(name)
