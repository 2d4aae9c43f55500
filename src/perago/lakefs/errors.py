"""Turn everything that a request to LakeFS can end with into errors of Perago: only here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from obstore.exceptions import (
    BaseError,
    GenericError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from perago import http_errors
from perago.errors import BackendDeniedError, BackendError, BackendRefusedError, PeragoError
from perago.http_client import Answer, RequestError
from perago.lakefs.store_client import StoreAnswer
from perago.text import shorten_line

SERVER = http_errors.ServerDescription(
    "LakeFS",
    address="LAKECTL_SERVER_ENDPOINT_URL",
    credentials="LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
)
_LOCAL = re.compile(r"[^:\n]* \(os error (\d{1,4})\)")
_STATUS = re.compile(r"status code: (\d{3})\b")
# Every refusal of the S3 gateway and of an object store has a code. One without it is of another
# web server.
_CODE = re.compile(r"<Code>(\w{1,99})</Code>")
_OTHER_WAY = "or set PERAGO_TRANSFER=gateway, so that objects move through LakeFS."


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
    except BaseError as error:
        raise _from_store(what, error, changes=changes) from None
    except OSError as error:
        # obstore raises FileNotFoundError for a missing object, without a number; an error with a
        # number is of a local file. One that obstore could not open has it in the text.
        if error.errno is not None:
            raise
        if local := _LOCAL.fullmatch(str(error)):
            raise OSError(int(local[1]), os.strerror(int(local[1]))) from None
        raise _from_store(what, error, changes=changes, status=404) from None
    except Exception as error:  # noqa: BLE001  whatever an answer makes the code raise
        raise http_errors.from_unreadable(SERVER, what, error, changes=changes) from None


def from_answer(
    what: str, answer: Answer, *, changes: bool, secrets: Sequence[str] = ()
) -> BackendError:
    """Build the error for an answer that does not say "done"."""
    message = _message(answer)
    return http_errors.from_answer(SERVER, what, answer, message, changes=changes, secrets=secrets)


def from_message(what: str, status: int, message: str, *, changes: bool) -> BackendError:
    """Build the error for a part of a request that LakeFS refused."""
    return http_errors.from_status(SERVER, what, status, message, is_answer=True, changes=changes)


def from_store_request(what: str, host: str, error: RequestError) -> BackendError:
    """Build the error for a request to the object store without an answer."""
    return http_errors.from_request(_ObjectStore.at(host), what, error, changes=False)


def from_store_answer(what: str, host: str, answer: StoreAnswer) -> BackendError:
    """Build the error for an answer of the object store that does not say "done".

    Of its text nothing but the code is shown: stores repeat what was signed, and the signature.
    """
    found = _CODE.search(bytes(answer.content).decode("utf-8", "replace"))
    return http_errors.from_status(
        _ObjectStore.at(host),
        what,
        answer.status,
        found[1] if found else "",
        is_answer=found is not None,
        changes=False,
    )


def from_damaged_part(what: str, host: str) -> BackendError:
    """Build the error for a part of which the object store has another content than was sent."""
    store = _ObjectStore.at(host)
    message = f"{store.name} has another content of a part than was sent, twice, to {what}"
    return http_errors.outage(message, changes=False, hint=store.unreachable_hint)


class _ObjectStore(http_errors.ServerDescription):
    """The store to which LakeFS gives addresses. No setting says where it is."""

    @classmethod
    def at(cls, host: str) -> _ObjectStore:
        return cls(f"the object store {host}", address="", credentials="")

    @property
    def unreachable_hint(self) -> str:
        return f"Check that it is up and reachable from this machine, {_OTHER_WAY}"

    @property
    def denied_hint(self) -> str:
        return f"LakeFS signed the address: check its clock and its rights there, {_OTHER_WAY}"

    @property
    def mistaken_hint(self) -> str:
        return f"LakeFS's addresses must lead to its object store from this machine, {_OTHER_WAY}"


def _from_store(
    what: str, error: Exception, *, changes: bool, status: int | None = None
) -> BackendError:
    text = str(error).partition("Debug source:")[0]
    found = _STATUS.search(text)
    status = int(found[1]) if found else status
    if status is not None:
        is_answer = _CODE.search(text) is not None
        return http_errors.from_status(
            SERVER, what, status, text, is_answer=is_answer, changes=changes
        )
    message = f"LakeFS could not {what}: {shorten_line(text, http_errors.MAX_TEXT)}"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return BackendDeniedError(message, hint=SERVER.denied_hint)
    if isinstance(error, GenericError):
        return http_errors.outage(message, changes=changes, hint=SERVER.unreachable_hint)
    return BackendRefusedError(message)


def _message(answer: Answer) -> str | None:
    """Return the message of an error that LakeFS wrote, or None.

    LakeFS's errors are a message and nothing else; what it does not find is "not found". A gateway
    in front of it writes other fields, or other words.
    """
    try:
        error = http_errors.parse_json(answer.body)
    except ValueError:
        return None
    if error == {"reference": ""}:
        # A merge with conflicts is answered with an empty result of a merge, and no message.
        return "conflict found"
    if not isinstance(error, dict) or error.keys() != {"message"}:
        return None
    message = error["message"]
    if not isinstance(message, str) or (answer.status == 404 and "not found" not in message):
        return None
    return message
