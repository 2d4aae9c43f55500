"""Translate the errors of the SDK, urllib3 and obstore into those of Perago: only here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

import urllib3.exceptions as http
from obstore.exceptions import (
    BaseError,
    GenericError,
    PermissionDeniedError,
    UnauthenticatedError,
)

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
from perago.text import shorten_line

if TYPE_CHECKING:
    from lakefs_sdk.exceptions import ApiException

_NEVER_SENT = (http.NewConnectionError, http.ConnectTimeoutError, http.LocationParseError)
_MAX_TEXT = 300
_STATUS = re.compile(r"status code: (\d{3})\b")


@contextmanager
def translated(what: str, *, changes: bool = False) -> Iterator[None]:
    """Translate the errors of one request, described by ``what``.

    With ``changes``, a missing answer is a ``LostReplyError``: the change may have been made.
    """
    try:
        yield
    except http.HTTPError as error:
        raise _from_transport(what, error, changes=changes) from None
    except BaseError as error:
        raise _from_store(what, error) from None
    except FileNotFoundError as error:
        # obstore raises this for a missing object, without a number, and for a missing file.
        if error.errno is not None:
            raise
        raise NotFoundError(f"LakeFS could not {what}: {_store_text(error)}") from None
    except Exception as error:
        if not _is_of_sdk(error):
            raise
        raise _from_status(what, error.status or 0, _message(error), changes=changes) from None


def _is_of_sdk(error: Exception) -> TypeGuard[ApiException]:
    # Not imported for this: it takes a second, and Spark's Python workers do not use the SDK.
    # While it is not imported, its errors cannot have been raised.
    sdk = sys.modules.get("lakefs_sdk.exceptions")
    return sdk is not None and isinstance(error, sdk.ApiException)


def from_status(what: str, status: int, body: bytes, *, changes: bool = False) -> BackendError:
    """Build the error for an answer that was read without the SDK."""
    return _from_status(what, status, _text_of(body), changes=changes)


def from_unreadable(what: str, error: ValueError) -> BackendUnavailableError:
    """Build the error for an answer that was cut off or that LakeFS did not write."""
    return BackendUnavailableError(f"LakeFS could not {what}: {error}")


def _from_status(what: str, status: int, text: str, *, changes: bool) -> BackendError:
    message = f"LakeFS could not {what}: {status} {text}"
    if status in {401, 403}:
        return BackendDeniedError(message)
    if status == 404:
        return NotFoundError(message)
    if status == 409:
        return ConflictError(message)
    if status == 412:
        return PreconditionError(message)
    if status == 429:
        return BackendUnavailableError(message)
    if 300 <= status < 500:
        return BackendRefusedError(message)
    if changes and status >= 500:
        # The server or a proxy failed after the change may have been made.
        return LostReplyError(message)
    return BackendUnavailableError(message)


def _from_transport(what: str, error: http.HTTPError, *, changes: bool) -> BackendError:
    cause = error.reason if isinstance(error, http.MaxRetryError) and error.reason else error
    text = shorten_line(str(cause), _MAX_TEXT)
    message = f"LakeFS did not answer to {what}: {type(cause).__name__}: {text}"
    if changes and not isinstance(cause, _NEVER_SENT):
        return LostReplyError(message)
    return BackendUnavailableError(message)


def _from_store(what: str, error: BaseError) -> BackendError:
    text = _store_text(error)
    status = _STATUS.search(str(error))
    if status:
        return _from_status(what, int(status[1]), text, changes=False)
    message = f"LakeFS could not {what}: {text}"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return BackendDeniedError(message)
    if isinstance(error, GenericError):
        return BackendUnavailableError(message)
    return BackendRefusedError(message)


def _store_text(error: Exception) -> str:
    """Return the text of an obstore error, without the dump of internals at its end."""
    return shorten_line(str(error).partition("Debug source:")[0], _MAX_TEXT)


def _message(error: ApiException) -> str:
    return _text_of(error.body) if error.body else str(error.reason or "")


def _text_of(body: bytes | str) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return shorten_line(str(message), _MAX_TEXT)
