"""Turn everything that a request to Conductor can end with into errors of Perago: only here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perago import http_errors
from perago.errors import BackendError, PeragoError
from perago.http_client import Answer, RequestError

SERVER = http_errors.ServerDescription(
    "Conductor",
    address="CONDUCTOR_SERVER_URL",
    credentials="CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET",
)


@contextmanager
def translated(what: str, *, changes: bool = False) -> Iterator[None]:
    """Translate the errors of one request, described by ``what``.

    With ``changes``, a missing answer is a ``LostReplyError``: the change may have been made.
    """
    try:
        yield
    except PeragoError:
        raise
    except RequestError as error:
        raise http_errors.from_request(SERVER, what, error, changes=changes) from None
    except Exception as error:  # noqa: BLE001  whatever an answer makes the code raise
        raise http_errors.from_unreadable(SERVER, what, error, changes=changes) from None


def from_answer(
    what: str, answer: Answer, *, changes: bool, secrets: Sequence[str] = ()
) -> BackendError:
    """Build the error for an answer that does not say "done"."""
    explanation = _explanation(answer)
    return http_errors.from_answer(
        SERVER, what, answer, explanation, changes=changes, secrets=secrets
    )


def _explanation(answer: Answer) -> str | None:
    """Return the message (where it only says "see below", what is below), or None.

    None where the answer is not Conductor's: a gateway's JSON may have a message, too.
    """
    try:
        error = http_errors.parse_json(answer.body)
        if not _is_own(answer.status, error):
            return None
        details = [str(item["message"]) for item in error.get("validationErrors") or []]
        return "; ".join(details) or str(error["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _is_own(status: int, error: Any) -> bool:
    """Whether an error has the shape of Conductor's: it repeats the status, and says if to retry.

    Servers with access keys deny with a shape of their own.
    """
    if status in {401, 403} and isinstance(error.get("error"), str):
        return True
    return error.get("status") == status and isinstance(error.get("retryable"), bool)
