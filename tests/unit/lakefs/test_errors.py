"""Foreign errors become ours at one edge."""

from __future__ import annotations

from pathlib import Path

import pytest
import urllib3.exceptions as http
from lakefs_sdk.exceptions import ApiException
from obstore.exceptions import GenericError, InvalidPathError

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendRefusedError,
    BackendUnavailableError,
    ConflictError,
    LostReplyError,
    NotFoundError,
)
from perago.lakefs.errors import from_status, translated


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (307, BackendRefusedError),
        (400, BackendRefusedError),
        (401, BackendDeniedError),
        (403, BackendDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (412, BackendRefusedError),
        (429, BackendUnavailableError),
        (500, BackendUnavailableError),
        (503, BackendUnavailableError),
    ],
)
def test_an_answer_is_translated_by_its_status(status: int, kind: type[BackendError]) -> None:
    error = from_status("list", status, b'{"message": "why"}')
    assert type(error) is kind
    assert str(error) == f"LakeFS could not list: {status} why"


def test_a_server_error_after_a_change_was_asked_for_may_hide_the_change() -> None:
    assert type(from_status("merge", 502, b"", changes=True)) is LostReplyError
    assert type(from_status("merge", 412, b"", changes=True)) is BackendRefusedError


@pytest.mark.parametrize("error", [http.ReadTimeoutError(None, "", "silent"), http.ProtocolError()])  # type: ignore[arg-type]
def test_a_reply_that_never_came_is_lost_only_when_a_change_was_asked_for(error: Exception) -> None:
    with pytest.raises(LostReplyError), translated("merge", changes=True):
        raise error
    with pytest.raises(BackendUnavailableError) as caught, translated("list"):
        raise error
    assert type(caught.value) is BackendUnavailableError


def test_a_request_that_was_never_sent_is_not_lost() -> None:
    error = http.NewConnectionError(None, "refused")  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailableError) as caught, translated("merge", changes=True):
        raise error
    assert type(caught.value) is BackendUnavailableError


def test_an_answer_of_the_sdk_is_translated_with_its_message() -> None:
    answer = ApiException(status=409, reason="Conflict")
    answer.body = '{"message": "branch exists"}'
    with pytest.raises(ConflictError) as caught, translated("create"):
        raise answer
    assert str(caught.value) == "LakeFS could not create: 409 branch exists"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (GenericError("connection reset"), BackendUnavailableError),
        (GenericError("non-2xx status code: 503 Service Unavailable"), BackendUnavailableError),
        (GenericError("non-2xx status code: 400 Bad Request"), BackendRefusedError),
        (GenericError("x" * 999 + " status code: 400 Bad Request"), BackendRefusedError),
        (InvalidPathError("//"), BackendRefusedError),
        (FileNotFoundError("Object at location x not found"), NotFoundError),
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
        raise FileNotFoundError("not found\n\nDebug source:\nNotFound { path: x }")
    assert str(caught.value) == "LakeFS could not read: not found"


def test_a_local_file_that_is_missing_is_no_answer_of_lakefs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), translated("write"):
        (tmp_path / "missing").read_bytes()


def test_a_long_answer_is_shortened() -> None:
    assert len(str(from_status("list", 500, b"x" * 10_000))) < 400
