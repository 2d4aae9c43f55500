"""How an attempt ends, and the one function that maps an exception to a Conductor result."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from perago.errors import Disposition, PeragoError
from perago.text import shorten

_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Completed:
    """The attempt did its work; ``output`` is what Conductor gets."""

    output: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt did not; ``disposition`` is the Conductor status."""

    disposition: Disposition
    reason: str
    code: str | None
    hint: str | None
    trace: str
    # What a command ends with that ran the attempt itself.
    exit_code: int = 1


Outcome = Completed | Failed


def failure_of(error: BaseException) -> Failed:
    """What Conductor is told about an exception. Only what says so itself is terminal."""
    known = error if isinstance(error, PeragoError) else None
    return Failed(
        disposition=known.disposition if known else Disposition.RETRY,
        reason=shorten(f"{type(error).__name__}: {error}", _MAX_REASON),
        code=known.code if known else None,
        hint=known.hint if known else None,
        trace="".join(traceback.format_exception(error)),
        exit_code=known.exit_code if known else 1,
    )
