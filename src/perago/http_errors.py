"""Say which error a request ended with, the same way for every server.

What is not an answer of the server (a page, another status, a body that does not fit, a gateway's
own JSON) says nothing about the state of the server: it is an outage, and a lost reply if a change
was asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendRefusedError,
    BackendUnavailableError,
    ConflictError,
    LostReplyError,
    NotFoundError,
    PreconditionError,
)
from perago.http_client import Answer, RequestError
from perago.masking import Masker
from perago.text import shorten_line

MAX_TEXT = 300
_BY_STATUS: dict[int, type[BackendError]] = {
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionError,
}
# A text, or brackets that follow each other: an answer may have millions.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]+|[\]}]+')
# Python parses fewer than 1000 levels, less what is on the stack.
_DEEPEST = 500
# The request is too large: also a proxy that says so has not passed it on.
_NOT_PASSED_ON = {411, 413, 414, 431}


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """A server's name, and the settings that say where it is and as whom it is asked."""

    name: str
    address: str
    credentials: str

    @property
    def unreachable_hint(self) -> str:
        return (
            f"Check that {self.name} is up and reachable from this machine: "
            f"{self.address} has its address."
        )

    @property
    def denied_hint(self) -> str:
        return f"Check {self.credentials}, and what their user may do."

    @property
    def mistaken_hint(self) -> str:
        return (
            f"Set {self.address} to the address of {self.name} itself, and not of another server, "
            "a proxy or a login page."
        )


def from_answer(
    server: ServerDescription,
    what: str,
    answer: Answer,
    message: str | None,
    *,
    changes: bool,
    secrets: Sequence[str] = (),
) -> BackendError:
    """Build the error for an answer that does not say "done".

    ``message`` is what the server itself says in it; None when the answer is not the server's.
    """
    text = _foreign_text(answer.body) if message is None else message
    return from_status(
        server,
        what,
        answer.status,
        # A server may repeat what it was sent.
        Masker((None, secret) for secret in secrets)(text),
        is_answer=message is not None,
        changes=changes,
    )


def from_status(
    server: ServerDescription, what: str, status: int, text: str, *, is_answer: bool, changes: bool
) -> BackendError:
    """Build the error for a status; ``is_answer`` if the body has the server's own shape."""
    message = f"{server.name} could not {what}: {status} {shorten_line(text, MAX_TEXT)}".rstrip()
    if status == 429:
        return BackendUnavailableError(message, hint="Try again later: the server is overloaded.")
    if status in _NOT_PASSED_ON:
        return BackendRefusedError(message)
    if status in {401, 403} and is_answer:
        return BackendDeniedError(message, hint=server.denied_hint)
    if 400 <= status < 500 and is_answer:
        return _BY_STATUS.get(status, BackendRefusedError)(message)
    if status < 500:
        return _not_the_server(server, what, f"{status} {text}", changes=changes)
    return outage(message, changes=changes, hint=server.unreachable_hint)


def from_request(
    server: ServerDescription, what: str, error: RequestError, *, changes: bool
) -> BackendError:
    """Build the error for a request without an answer."""
    text = shorten_line(str(error), MAX_TEXT)
    return outage(
        f"{server.name} did not answer to {what}: {text}",
        changes=changes and error.sent,
        hint=server.unreachable_hint,
    )


def from_unreadable(
    server: ServerDescription, what: str, error: Exception, *, changes: bool
) -> BackendError:
    """Build the error for an answer that was cut off or that the server did not write."""
    return _not_the_server(server, what, reason_of(error), changes=changes)


def outage(message: str, *, changes: bool, hint: str | None = None) -> BackendUnavailableError:
    """Build the error for a missing answer: the change that was asked for may have been made."""
    kind = LostReplyError if changes else BackendUnavailableError
    return kind(message, hint=hint)


def _not_the_server(
    server: ServerDescription, what: str, text: str, *, changes: bool
) -> BackendError:
    return outage(
        f"what answered to {what} is not {server.name}: {shorten_line(text, MAX_TEXT)}",
        changes=changes,
        hint=server.mistaken_hint,
    )


def _foreign_text(body: bytes) -> str:
    """Return what another server says: the message in its JSON, or all of it."""
    try:
        return str(parse_json(body)["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace")


def nothing(body: bytes) -> None:
    """Read the body of an answer that has none; a page is no such answer."""
    if body.strip():
        raise ValueError("the answer has a body where there is none")


def parse_json(body: bytes) -> Any:
    """Parse JSON; raises ``ValueError`` for everything that is none."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    except ValueError:
        raise ValueError("the answer is not JSON") from None


def parse_deep_json(body: bytes) -> Any:
    """Parse JSON that is nested more deeply than Python can parse, with nulls at the bottom.

    A task whose input is too deep must be delivered, so that its attempt can fail with a reason:
    what is cut off is deeper than any input that is accepted.
    """
    try:
        return json.loads(body)
    except RecursionError:
        return parse_json(_cut(body))
    except ValueError:
        raise ValueError("the answer is not JSON") from None


def _cut(body: bytes) -> bytes:
    """Put null in the place of every array and object below the deepest level that is kept."""
    kept, depth, start = [], 0, 0
    for token in _TOKEN.finditer(body):
        begin, end = token.span()
        if body[begin] in b"[{":
            if depth <= _DEEPEST < depth + end - begin:
                kept += [body[start : begin + _DEEPEST - depth], b"null"]
            depth += end - begin
        elif body[begin] in b"]}":
            if depth + begin - end <= _DEEPEST < depth:
                start = begin + depth - _DEEPEST
            depth += begin - end
    return b"".join([*kept, body[start:]]) if depth == 0 else b""


def reason_of(error: Exception) -> str:
    """Describe why an answer does not fit, without the values in it."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg']}"
    return str(error) if isinstance(error, ValueError) else type(error).__name__
