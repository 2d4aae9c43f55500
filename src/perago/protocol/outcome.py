"""How an attempt ends, and the one function that maps an exception to a Conductor result."""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass
from typing import Any

from perago.errors import (
    BackendDeniedError,
    BackendUnavailableError,
    ConfigurationError,
    Disposition,
    PeragoError,
    ServerError,
    SetupError,
)
from perago.text import as_utf8, shorten, shorten_middle

_MAX_REASON = 500
_MAX_HINT = 1000
_MAX_TRACE = 20_000
# These say something about the machine and its servers, and nothing about the task.
_INFRASTRUCTURE = (
    BackendUnavailableError,
    BackendDeniedError,
    ServerError,
    SetupError,
    ConfigurationError,
)
_EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EIO}
)


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
    # Whether the next attempt on the same machine would fail as well, whatever its task.
    is_infrastructure: bool = False


Outcome = Completed | Failed


def failure_of(error: BaseException) -> Failed:
    """What Conductor is told about an exception. Only what says so itself is terminal.

    The exception may be of an author's class, so nothing about it is taken for granted: every text
    is bounded and valid Unicode, and what raises when it is looked at is left out.
    """
    known = error if isinstance(error, PeragoError) else None
    terminal = known is not None and known.disposition is Disposition.TERMINAL
    return Failed(
        disposition=Disposition.TERMINAL if terminal else Disposition.RETRY,
        reason=shorten(f"{type(error).__name__}: {describe(error)}", _MAX_REASON),
        code=known.code if known else None,
        hint=shorten(describe(known.hint), _MAX_HINT) if known and known.hint else None,
        trace=shorten_middle(_trace(error), _MAX_TRACE),
        exit_code=known.exit_code if known else 1,
        is_infrastructure=_is_infrastructure(error),
    )


def describe(value: object) -> str:
    """The text of an exception or another value, also where its own ``__str__`` fails."""
    try:
        return as_utf8(str(value))
    except BaseException as error:  # noqa: BLE001  an author's __str__ may raise anything
        return f"<its text cannot be read: __str__ raised {type(error).__name__}>"


def _trace(error: BaseException) -> str:
    try:
        return as_utf8("".join(traceback.format_exception(error)))
    except BaseException as problem:  # noqa: BLE001  an author's __repr__ may raise anything
        return f"<the traceback cannot be written: {type(problem).__name__}>"


def _is_infrastructure(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return True
    return isinstance(error, _INFRASTRUCTURE)
