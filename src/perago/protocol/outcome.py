"""How an attempt ends: its output, and the one function that maps an exception to a result."""

from __future__ import annotations

import errno
import json
import re
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from perago.errors import INFRASTRUCTURE, Disposition, MachineError, PeragoError, ResultError
from perago.masking import mask_secrets
from perago.protocol.job import Ports
from perago.protocol.json_value import encode_json
from perago.text import as_utf8, shorten, shorten_middle

# Conductor keeps so many characters of a reason.
_MAX_REASON = 500
_MAX_HINT = 1000
_MAX_TRACE = 20_000
_DISK = (
    "Free space on that disk; `perago sweep --yes` (PERAGO_WORKSPACE_ROOT) and `perago cache "
    "clear` (PERAGO_OBJECT_CACHE) remove what is no longer needed."
)
_FILES = "Raise the limit of open files (ulimit -n), or lower PERAGO_TRANSFER_THREADS."
# Python has no error number for this, and no class of its own.
_NO_THREAD = "can't start new thread"
_THREADS = (
    "Raise the limit of processes and threads (ulimit -u; pids.max or TasksMax of the control "
    "group), or give the worker fewer executors (-j)."
)
_BROKEN = "Look at the machine's disk: it cannot be written."
# The machine is at its end, and what to do about it.
_EXHAUSTED = {
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: "Give the machine more memory, or the worker fewer executors (-j).",
    errno.EROFS: _BROKEN,
    errno.EIO: _BROKEN,
}
# What `told_reason` adds to a reason.
_ADDED = re.compile(r" \[(?P<code>PRG-\d{3})\](?: Try: (?P<hint>.*))?\Z", re.DOTALL)
# Where an author's code begins: what called it says nothing about its failure.
_CALLER = ("perago.protocol.steps", "call_body")


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
    known = error if isinstance(error, PeragoError) else machine_error(error)
    terminal = known is not None and known.disposition is Disposition.TERMINAL
    return Failed(
        disposition=Disposition.TERMINAL if terminal else Disposition.RETRY,
        reason=shorten(f"{type(known or error).__name__}: {describe(known or error)}", _MAX_REASON),
        code=known.code if known else None,
        hint=shorten(describe(known.hint), _MAX_HINT) if known and known.hint else None,
        trace=shorten_middle(_trace(error), _MAX_TRACE),
        exit_code=known.exit_code if known else 1,
        is_infrastructure=isinstance(known, INFRASTRUCTURE),
    )


def machine_error(error: BaseException) -> MachineError | None:
    """The error for a machine that is at its end, where an exception tells of that."""
    text, hint = describe(error), None
    if isinstance(error, OSError):
        hint = _EXHAUSTED.get(error.errno or 0)
    elif isinstance(error, RuntimeError) and text == _NO_THREAD:
        hint = _THREADS
    return MachineError(text, hint=hint) if hint else None


def told_reason(outcome: Failed) -> str:
    """The reason as Conductor gets it: with the code, and with what to do where there is room."""
    code = f" [{outcome.code}]" if outcome.code else ""
    reason = shorten(outcome.reason, _MAX_REASON - len(code)) + code
    advised = f"{reason} Try: {outcome.hint}"
    return advised if code and outcome.hint and len(advised) <= _MAX_REASON else reason


def bare_reason(told: str) -> str:
    """The reason alone, of what ``told_reason`` made of it."""
    return _ADDED.sub("", told)


def told_code(told: str) -> str | None:
    """The code, as far as it is part of what ``told_reason`` made."""
    found = _ADDED.search(told)
    return found["code"] if found else None


def told_hint(told: str) -> str | None:
    """What to do, as far as it is part of what ``told_reason`` made."""
    found = _ADDED.search(told)
    return found["hint"] if found else None


def checked_output(ports: Ports, payload: dict[str, Any]) -> dict[str, Any]:
    """Build the very JSON that Conductor will get, before anything is published.

    What is returned is read back from those bytes: plain data without surprises.
    """
    try:
        encoded = encode_json(payload)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"the result cannot be written as JSON: {describe(error)}") from error
    if len(encoded) > ports.policy.max_output_bytes:
        raise ResultError(
            f"the output has {len(encoded)} bytes, "
            f"more than the {ports.policy.max_output_bytes} allowed"
        )
    output: dict[str, Any] = json.loads(encoded)
    return output


def describe(value: object) -> str:
    """The text of an exception or another value, also where its own ``__str__`` fails.

    Its secrets are masked here, before the text is cut: half a secret would not be found any more.
    """
    try:
        return mask_secrets(as_utf8(str(value)))
    except BaseException as error:  # noqa: BLE001  an author's __str__ may raise anything
        return f"<its text cannot be read: __str__ raised {type(error).__name__}>"


def _trace(error: BaseException) -> str:
    try:
        frames = _authors_frames(error.__traceback__)
        trace = "".join(traceback.format_exception(type(error), error, frames))
        return mask_secrets(as_utf8(trace))
    except BaseException as problem:  # noqa: BLE001  an author's __repr__ may raise anything
        return f"<the traceback cannot be written: {type(problem).__name__}>"


def _authors_frames(frames: TracebackType | None) -> TracebackType | None:
    """The part of a traceback in an author's code; all of it if the error is not of such code."""
    left = frames
    while left is not None:
        code, module = left.tb_frame.f_code, left.tb_frame.f_globals.get("__name__")
        left = left.tb_next
        if (module, code.co_name) == _CALLER:
            while left is not None and _is_own(left):
                left = left.tb_next
            return left or frames
    return frames


def _is_own(frame: TracebackType) -> bool:
    return str(frame.tb_frame.f_globals.get("__name__")).startswith("perago.")
