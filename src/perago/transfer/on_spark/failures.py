"""Errors as text, so that one raised in another process is raised here as it was there."""

from __future__ import annotations

import builtins
import json
from typing import Any

from perago import errors


def encode(error: Exception) -> str:
    """An error by the name of its class, with what it says."""
    told: dict[str, Any] = {"kind": type(error).__name__, "text": str(error)}
    if isinstance(error, errors.PeragoError):
        told["hint"] = error.hint
    elif isinstance(error, OSError) and error.errno is not None:
        told["system"] = [error.errno, error.strerror, _name(error.filename)]
    return json.dumps(told)


def decode(text: str) -> Exception:
    """The error that ``encode`` was given: of the same class, with the same text."""
    told = json.loads(text)
    kind = getattr(errors, told["kind"], None)
    if isinstance(kind, type) and issubclass(kind, errors.PeragoError):
        return kind(told["text"], hint=told["hint"])
    if "system" in told:
        number, reason, name = told["system"]
        # The number alone makes it FileNotFoundError, PermissionError and so on.
        return OSError(number, reason, name)
    kind = getattr(builtins, told["kind"], None)
    if isinstance(kind, type) and issubclass(kind, ValueError | TypeError | RuntimeError):
        return _of_builtin(kind, told["text"])
    return RuntimeError(f"{told['kind']}: {told['text']}")


def _of_builtin(kind: type[Exception], text: str) -> Exception:
    try:
        return kind(text)
    except TypeError:  # such as UnicodeDecodeError, which asks for more than a text
        return RuntimeError(f"{kind.__name__}: {text}")


def _name(name: object) -> str | None:
    return None if name is None else str(name)
