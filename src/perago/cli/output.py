"""What a command shows: text for people, one JSON document for programs, errors with a way out.

Results go to stdout; progress, logs and errors go to stderr, so that ``--json`` can be piped.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import traceback
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perago.errors import (
    INFRASTRUCTURE,
    BackendDeniedError,
    BackendUnavailableError,
    ConfigurationError,
    PeragoError,
)
from perago.masking import escape_controls, sendable
from perago.progress import tell
from perago.text import shorten

# The settings that say where a server is, and who asks it.
_ABOUT_SERVERS = {
    "lakefs_endpoint": ("LakeFS", "address"),
    "lakefs_access_key_id": ("LakeFS", "key"),
    "conductor_server_url": ("Conductor", "address"),
    "conductor_auth_key": ("Conductor", "key"),
}
# The version of all that `--json` prints. Keys may be added within a version; it changes when one
# is removed or means something else.
SCHEMA = 1
# What is wrong with a path that a user named, or with their right to it.
_OF_A_PATH = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}
)
_LONGEST_PATH = 200
# The data directory that `perago dev` was given.
_data_dir: Path | None = None


def json_text(value: Any) -> str:
    """One JSON document, ending in a newline; the order of keys is the value's own.

    A character that is not printable is escaped, so that no value can steer a terminal.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def emit_json(result: Mapping[str, Any]) -> None:
    """Print the result of a command with ``--json``: one object, with the version of its schema."""
    emit_value({"schema": SCHEMA, **result})


def emit_value(value: Any) -> None:
    """Print a result that is JSON by itself, without ``--json``."""
    sys.stdout.write(json_text(value))
    sys.stdout.flush()


def say(line: str = "") -> None:
    """Print one line of a result on stdout, with control characters escaped."""
    sys.stdout.write(escape_controls(line) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Print one line about what is going on, on stderr, without control characters and secrets."""
    tell(sendable(line))


def warn(line: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {line}")


def warn_of_undeleted(branch: str, reason: str) -> None:
    """Print that a command's short-lived branch is still there."""
    warn(f"branch {branch!r} could not be deleted, delete it by hand: {reason}")


def explain(error: PeragoError) -> None:
    """Print an error with its code and what to do about it."""
    note(f"{error.code} {type(error).__name__}: {error}")
    note(f"Try: {dev_commands(error.hint)}")
    if isinstance(error, BackendUnavailableError | BackendDeniedError):
        _show_settings(str(error), with_user=isinstance(error, BackendDeniedError))
    point_to_doctor_after(error)


def _show_settings(message: str, *, with_user: bool) -> None:
    """Say where the server is that an error tells of, as which user, and which setting says so."""
    from perago.settings import read_settings

    try:
        values = read_settings().values()
    except PeragoError:
        return
    for item in values:
        server, what = _ABOUT_SERVERS.get(item.field, ("", ""))
        # Some messages have the setting already.
        told = item.variable in message or (what == "key" and not with_user)
        if server and server in message and item.shown and not told:
            note(f"{server}'s {what} is {item.shown} ({item.variable}, {item.origin}).")


def use_data_dir(data_dir: Path) -> None:
    """Let the commands that are advised from now on name the data directory that was given."""
    global _data_dir
    _data_dir = data_dir


def dev_commands(text: str) -> str:
    """Complete the `perago dev` commands of a text."""
    if _data_dir is None:
        return text
    option = f"--data-dir {shlex.quote(str(_data_dir))}"
    return re.sub(r"`perago dev (\w+)", lambda found: f"{found[0]} {option}", text)


def point_to_doctor_after(*errors: PeragoError) -> None:
    """Say where to look, if one of these errors is not about what was asked for."""
    if any(isinstance(error, INFRASTRUCTURE) for error in errors):
        point_to_doctor()


def point_to_doctor() -> None:
    """Say where to look when the settings, a server or the machine may be the reason."""
    note("`perago doctor` checks the settings, the servers and this machine.")


def path_error(error: Exception) -> ConfigurationError | None:
    """Return the error for a path that cannot be used, where an exception tells of one."""
    if not isinstance(error, OSError) or error.errno not in _OF_A_PATH:
        return None
    if not isinstance(error.filename, str | bytes):  # none, or the number of an open file
        return None
    return ConfigurationError(
        f"cannot use {shorten(os.fsdecode(error.filename), _LONGEST_PATH)!r}: {error.strerror}",
        hint="Name another path, or let this user read and write this one.",
    )


def report_bug(error: Exception) -> None:
    """Print an unexpected exception: the traceback, then that it is a bug."""
    note("".join(traceback.format_exception(error)).rstrip("\n"))
    note(
        f"{PeragoError.code} This is a bug in Perago ({type(error).__name__}); "
        "please report it with the lines above."
    )


def write_file(path: Path, text: str) -> None:
    """Put a file in place whole or not at all; a link keeps pointing to where it points."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise OSError(errno.EINVAL, "it is no regular file")
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # the latter for a link that leads to itself
        raise ConfigurationError(
            f"cannot write {str(path)!r}: {getattr(error, 'strerror', None) or error}",
            hint="Give -o a file in a folder that exists and can be written.",
        ) from error
