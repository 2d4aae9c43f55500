"""The one place where the Conductor SDK's errors become ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from conductor.client.http.rest import ApiException

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendRefusedError,
    BackendUnavailableError,
    ConflictError,
    NotFoundError,
)
from perago.text import shorten_line

_MAX_TEXT = 300


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Run one request. Every change we ask of Conductor is read back, so none is 'lost'."""
    try:
        yield
    except ApiException as error:
        raise _from_api(what, error) from None
    except httpx.HTTPError as error:
        raise BackendUnavailableError(
            f"Conductor did not answer to {what}: {type(error).__name__}: {error}"
        ) from None


def _from_api(what: str, error: ApiException) -> BackendError:
    status = int(error.status or 0)
    text = _message(error)
    if status == 0:
        return BackendUnavailableError(f"Conductor did not answer to {what}: {text}")
    message = f"Conductor could not {what}: {status} {text}"
    if status in {401, 403}:
        return BackendDeniedError(message)
    if status == 404:
        return NotFoundError(message)
    if status == 409:
        return ConflictError(message)
    if status == 429 or status >= 500:
        return BackendUnavailableError(message)
    return BackendRefusedError(message)


def _message(error: ApiException) -> str:
    body = getattr(error, "body", None)
    try:
        text = _explanation(json.loads(body)) if body else str(error.reason or "")
    except (ValueError, KeyError, TypeError):
        text = str(body)
    return shorten_line(text, _MAX_TEXT)


def _explanation(answer: dict[str, Any]) -> str:
    """The message; where it only says "see below", what is below."""
    details = [str(item["message"]) for item in answer.get("validationErrors") or []]
    return "; ".join(details) or str(answer["message"])
