"""Paths that a user wrote: absolute, and with the home folder for ``~``."""

from __future__ import annotations

from pathlib import Path

from perago.errors import ConfigurationError


def absolute(path: Path) -> Path:
    """Make a path absolute. Raise ``ConfigurationError`` if there is no such home folder."""
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ConfigurationError(
            f"{str(path)!r}: there is no such home folder", hint="Write a full path."
        ) from None
