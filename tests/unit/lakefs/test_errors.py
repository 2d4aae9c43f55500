"""What a request to LakeFS ends with becomes an error of Perago at one edge."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from obstore.exceptions import GenericError, InvalidPathError

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
from perago.lakefs.errors import from_answer, translated

WHY = b'{"message": "why: not found"}'
CODE = "<Error><Code>NoSuchKey</Code></Error>"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BackendRefusedError),
        (401, BackendDeniedError),
        (403, BackendDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (412, PreconditionError),
        (413, BackendRefusedError),
        (429, BackendUnavailableError),
        (500, BackendUnavailableError),
        (503, BackendUnavailableError),
    ],
)
def test_an_answer_is_translated_by_its_status(status: int, kind: type[BackendError]) -> None:
    error = from_answer("list", Answer(status, WHY), changes=False)
    assert type(error) is kind
    assert str(error) == f"LakeFS could not list: {status} why: not found"


FOREIGN = {
    "a page": b"<html>",
    "a gateway": b'{"message": "not found", "request_id": "7f3c"}',
    "Conductor": b'{"status": 404, "message": "not found", "instance": "vm", "retryable": false}',
    "a message that is no text": b'{"message": ["not found"]}',
    "a list": b'["message"]',
}


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 409, 412])
@pytest.mark.parametrize("body", FOREIGN.values(), ids=list(FOREIGN))
def test_a_status_that_lakefs_did_not_write_is_an_outage(status: int, body: bytes) -> None:
    answer = Answer(status, body)
    assert type(from_answer("read", answer, changes=False)) is BackendUnavailableError
    assert type(from_answer("merge", answer, changes=True)) is LostReplyError


# LakeFS 1.84 says the last one, for a path that it does not have.
@pytest.mark.parametrize("message", ["Not Found", "no Route matched", "invalid API endpoint"])
def test_a_404_in_other_words_than_those_of_lakefs_is_an_outage(message: str) -> None:
    answer = Answer(404, json.dumps({"message": message}).encode())
    assert type(from_answer("read", answer, changes=False)) is BackendUnavailableError


# As LakeFS 1.84 writes them.
@pytest.mark.parametrize(
    "message",
    [
        "branch not found",
        "repository not found",
        "not found",
        "update branch main: get commit by ref nope: not found",
        "hard-reset main to nope: not found",
        "source reference 'nope': not found",
    ],
)
def test_what_lakefs_does_not_find_is_not_found(message: str) -> None:
    answer = Answer(404, json.dumps({"message": message}).encode() + b"\n")
    assert type(from_answer("read", answer, changes=False)) is NotFoundError


def test_a_proxy_may_find_a_request_too_large() -> None:
    error = from_answer("merge", Answer(413, b"<html>"), changes=True)
    assert type(error) is BackendRefusedError


def test_a_server_error_after_a_change_was_asked_for_may_hide_the_change() -> None:
    assert type(from_answer("merge", Answer(502, b""), changes=True)) is LostReplyError
    assert type(from_answer("merge", Answer(412, WHY), changes=True)) is PreconditionError


def test_a_reply_that_never_came_is_lost_only_when_a_change_was_asked_for() -> None:
    with pytest.raises(LostReplyError), translated("merge", changes=True):
        raise RequestError("silent", sent=True)
    with pytest.raises(BackendUnavailableError) as caught, translated("list"):
        raise RequestError("silent", sent=True)
    assert type(caught.value) is BackendUnavailableError


def test_a_request_that_was_never_sent_is_not_lost() -> None:
    with pytest.raises(BackendUnavailableError) as caught, translated("merge", changes=True):
        raise RequestError("refused", sent=False)
    assert type(caught.value) is BackendUnavailableError


@pytest.mark.parametrize("error", [ValueError(), AttributeError(), RecursionError(), KeyError("x")])
def test_whatever_an_answer_makes_the_code_raise_is_an_outage(error: Exception) -> None:
    with pytest.raises(BackendUnavailableError), translated("read"):
        raise error
    with pytest.raises(LostReplyError), translated("merge", changes=True):
        raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (GenericError("connection reset"), BackendUnavailableError),
        (GenericError("non-2xx status code: 503 Service Unavailable"), BackendUnavailableError),
        (GenericError(f"non-2xx status code: 400 Bad Request: {CODE}"), BackendRefusedError),
        (GenericError("non-2xx status code: 400 Bad Request: <html>"), BackendUnavailableError),
        (GenericError("x" * 999 + f" status code: 400 {CODE}"), BackendRefusedError),
        (InvalidPathError("//"), BackendRefusedError),
        (FileNotFoundError(f"Object at location x not found: {CODE}"), NotFoundError),
        (FileNotFoundError("Object at location x not found: <html>"), BackendUnavailableError),
    ],
)
def test_an_error_of_the_object_store_is_translated(
    error: Exception, kind: type[BackendError]
) -> None:
    with pytest.raises(kind) as caught, translated("read"):
        raise error
    assert type(caught.value) is kind


def test_the_dump_of_internals_that_the_object_store_adds_is_left_out() -> None:
    with pytest.raises(NotFoundError) as caught, translated("read"):
        raise FileNotFoundError(f"not found {CODE}\n\nDebug source:\nNotFound {{ path: x }}")
    assert str(caught.value) == f"LakeFS could not read: 404 not found {CODE}"


def test_a_local_file_that_is_missing_is_no_answer_of_lakefs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), translated("write"):
        (tmp_path / "missing").read_bytes()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Permission denied (os error 13)", errno.EACCES),
        ("No such file or directory (os error 2)", errno.ENOENT),
        ("Too many open files (os error 24)", errno.EMFILE),
    ],
)
def test_nor_is_one_that_obstore_cannot_open(text: str, number: int) -> None:
    """It tells the number in the text only."""
    expected = pytest.raises(OSError, match=os.strerror(number))
    with expected as caught, translated("write", changes=True):
        raise OSError(text)
    assert caught.value.errno == number


def test_a_long_answer_is_shortened() -> None:
    assert len(str(from_answer("list", Answer(500, b"x" * 10_000), changes=False))) < 400
