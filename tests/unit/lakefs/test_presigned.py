"""Objects past the gateway: which way they take, and what happens when the store does not do."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from pydantic import SecretStr
from tenacity import wait_none

from perago import retry
from perago.connections import LakeFSConnection
from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendUnavailableError,
    NotFoundError,
)
from perago.lakefs import presigned
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.presigned import SMALLEST_WRITTEN
from perago.transfer.inventory import PIECE, Digest
from support.presigning_lake import (
    BRANCH,
    COMMIT,
    REPOSITORY,
    SIGNATURE,
    PresigningLake,
    Reply,
    as_base64,
    chunked,
    cut,
    md5,
    status,
)

# Of this machine, and not one of loopback.
ANOTHER_NAME = "0.0.0.0"  # noqa: S104  nothing listens there
STAGING = f"/api/v1/repositories/{REPOSITORY}/branches/{BRANCH}/staging"
LARGE = bytes(range(256)) * ((2 * PIECE + 512) // 256)
Open = Callable[[PresigningLake], LakeFSObjects]


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_WAIT", wait_none())


@pytest.fixture
def lake() -> Iterator[PresigningLake]:
    with PresigningLake() as running:
        running.objects |= {"small": b"content", "tiny": b"another", "large": LARGE}
        yield running


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:

        def open_objects(lake: PresigningLake) -> LakeFSObjects:
            return stack.enter_context(closing(LakeFSObjects(connection(lake))))

        yield open_objects


@pytest.fixture
def objects(lake: PresigningLake, opened: Open) -> LakeFSObjects:
    return opened(lake)


def connection(lake: PresigningLake) -> LakeFSConnection:
    return LakeFSConnection(
        lake.url,
        "key",
        SecretStr("secret"),
        connect_timeout=5.0,
        read_timeout=5.0,
        retry_seconds=1.0,
    )


def read(objects: LakeFSObjects, key: str = "small", size: int = 7) -> bytes:
    return b"".join(objects.read(REPOSITORY, COMMIT, key, size))


def write(objects: LakeFSObjects, folder: Path, content: bytes, **metadata: str) -> str:
    source = folder / "source"
    source.write_bytes(content)
    return objects.write(
        REPOSITORY, BRANCH, "new", source, content_type="text/csv", metadata=metadata
    )


def through_gateway(lake: PresigningLake) -> list[str]:
    return [line for line in lake.lines() if line.split()[1].startswith(f"/{REPOSITORY}/")]


# Which way


def test_bytes_come_straight_from_the_store(lake: PresigningLake, objects: LakeFSObjects) -> None:
    assert read(objects) == b"content"
    assert read(objects, "large", len(LARGE)) == LARGE
    assert through_gateway(lake) == []
    assert len(lake.lines("GET /store/")) == 1 + 3
    assert len(lake.lines("GET /api/v1/config")) == 1


def test_they_go_through_the_gateway_if_that_is_asked_for(
    lake: PresigningLake, tmp_path: Path
) -> None:
    by_gateway = replace(connection(lake), transfer="gateway")
    with closing(LakeFSObjects(by_gateway)) as objects:
        assert read(objects) == b"content"
        assert write(objects, tmp_path, bytes(SMALLEST_WRITTEN)) == ""
    assert lake.lines() == through_gateway(lake)


def test_and_where_lakefs_gives_out_no_addresses(opened: Open) -> None:
    with PresigningLake(presigns=False) as lake:
        lake.objects["small"] = b"content"
        objects = opened(lake)
        assert [read(objects), read(objects)] == [b"content"] * 2
        assert lake.lines() == ["GET /api/v1/config", *through_gateway(lake)]


def test_an_empty_object_needs_no_request(lake: PresigningLake, objects: LakeFSObjects) -> None:
    assert read(objects, "small", 0) == b""
    assert lake.requests == []


def test_a_small_object_is_written_in_one_request(
    lake: PresigningLake, objects: LakeFSObjects, tmp_path: Path
) -> None:
    assert write(objects, tmp_path, bytes(SMALLEST_WRITTEN - 1)) == ""
    assert [line.split()[0] for line in lake.lines()] == ["PUT"]


def test_a_larger_one_is_put_and_linked_with_all_that_it_has(
    lake: PresigningLake, objects: LakeFSObjects, tmp_path: Path
) -> None:
    content = bytes(SMALLEST_WRITTEN)
    assert write(objects, tmp_path, content, Owner="me") == md5(content)
    put = next(asked for asked in lake.requests if asked.line.startswith("PUT /store/"))
    assert put.headers["content-md5"] == "ttgbNgpWctgMJ0MPORU+LA=="
    assert "authorization" not in put.headers
    assert lake.objects["new"] == content
    assert lake.labels["new"] == {
        "staging": {"physical_address": f"p/{b'new'.hex()}"},
        "checksum": md5(content),
        "size_bytes": len(content),
        "content_type": "text/csv",
        "user_metadata": {"Owner": "me"},
    }
    assert [line.split()[0] for line in lake.lines()] == ["GET", "GET", "PUT", "PUT"]
    assert through_gateway(lake) == []


def test_a_large_one_goes_in_parts_whose_tags_give_its_digest(
    lake: PresigningLake, objects: LakeFSObjects, tmp_path: Path
) -> None:
    digest = Digest(len(LARGE))
    digest.update(memoryview(LARGE))
    assert write(objects, tmp_path, LARGE, Owner="me") == digest.text()
    assert lake.objects["new"] == LARGE
    assert lake.labels["new"]["user_metadata"] == {"Owner": "me"}
    assert len(lake.lines("PUT /store/")) == 3
    assert through_gateway(lake) == []


def test_tags_that_are_no_md5_say_nothing_about_the_content(
    lake: PresigningLake, objects: LakeFSObjects, tmp_path: Path
) -> None:
    lake.break_next("PUT /store/", lambda _: Reply(200, headers={"ETag": md5(b"token")}), times=3)
    assert write(objects, tmp_path, LARGE) == ""
    assert lake.objects["new"] == LARGE


@pytest.mark.parametrize(
    ("size", "in_parts", "expected"),
    [
        (0, True, False),
        (SMALLEST_WRITTEN - 1, True, False),
        (SMALLEST_WRITTEN, False, True),
        (PIECE, False, True),
        (PIECE + 1, False, False),
        (PIECE + 1, True, True),
    ],
)
def test_an_object_is_written_past_the_gateway_by_its_size_and_what_is_offered(
    opened: Open, size: int, in_parts: bool, expected: bool
) -> None:
    with PresigningLake(in_parts=in_parts) as lake:
        assert opened(lake)._presigned.can_write(size) is expected


def test_azure_is_told_what_kind_of_blob_it_gets(opened: Open, tmp_path: Path) -> None:
    with PresigningLake(kind="azure") as lake:
        write(opened(lake), tmp_path, bytes(SMALLEST_WRITTEN))
        (put,) = (asked for asked in lake.requests if asked.line.startswith("PUT /store/"))
    assert put.headers["x-ms-blob-type"] == "BlockBlob"


# A store that is reached without encryption


@pytest.mark.parametrize(("host", "warns"), [(ANOTHER_NAME, True), ("127.0.0.1", False)])
def test_plain_http_to_the_store_is_warned_of_once(
    lake: PresigningLake,
    opened: Open,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    host: str,
    *,
    warns: bool,
) -> None:
    presigned._warn_of_plain_http.cache_clear()
    lake.store_url = lake.url.replace("127.0.0.1", host)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            objects = opened(lake)
            assert [read(objects), read(objects, "tiny")] == [b"content", b"another"]
            write(objects, tmp_path, LARGE)
    assert through_gateway(lake) == []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == warns
    assert all(f"the object store {lake.store_url}: plain http" in text for text in told)
    assert SIGNATURE not in caplog.text


# A store that is of no use from here


def test_what_cannot_be_had_from_the_store_comes_through_the_gateway(
    lake: PresigningLake,
    objects: LakeFSObjects,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake.store_url = "http://127.0.0.1:1"
    with caplog.at_level(logging.WARNING):
        assert read(objects) == b"content"
    (record,) = caplog.records
    text = record.getMessage()
    assert "the object store http://127.0.0.1:1 did not answer to read object 'small'" in text
    assert "set PERAGO_TRANSFER=gateway" in text
    assert SIGNATURE not in text
    # For a while nobody tries again.
    lake.requests.clear()
    assert read(objects) == b"content"
    write(objects, tmp_path, bytes(SMALLEST_WRITTEN))
    assert lake.lines() == through_gateway(lake)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("fault", [status(403), status(500), status(302), status(200), cut])
def test_so_does_what_a_stranger_in_its_place_answers(
    lake: PresigningLake, objects: LakeFSObjects, fault: Callable[[Reply], Reply | None]
) -> None:
    lake.break_next("GET /store/", fault, times=2)
    assert read(objects) == b"content"
    assert len(through_gateway(lake)) == 1


def test_of_a_large_object_the_rest_comes_through_the_gateway(
    lake: PresigningLake, objects: LakeFSObjects
) -> None:
    """Its pieces are asked for together: the second one fails before the first one has come."""
    failed = threading.Event()

    def fail_unless_first(reply: Reply) -> Reply:
        if reply.headers["Content-Range"].startswith("bytes 0-"):
            assert failed.wait(10)
            # And the client knows it.
            sleep(0.2)
            return reply
        failed.set()
        return Reply(503)

    lake.break_next("GET /store/", fail_unless_first, times=3)
    assert read(objects, "large", len(LARGE)) == LARGE
    assert len(through_gateway(lake)) == 2


def test_a_large_object_that_is_longer_in_the_store_is_not_cut(
    lake: PresigningLake, objects: LakeFSObjects
) -> None:
    """One that LakeFS imported, and another tool wrote anew at its place since."""
    assert read(objects) == b"content"
    with pytest.raises(BackendUnavailableError, match="the object has another length"):
        read(objects, "large", len(LARGE) - 1)
    assert through_gateway(lake) == []


def test_a_write_that_the_store_does_not_take_goes_through_the_gateway(
    lake: PresigningLake, objects: LakeFSObjects, tmp_path: Path
) -> None:
    lake.break_next("PUT /store/", status(403), times=2)
    content = bytes(SMALLEST_WRITTEN)
    assert write(objects, tmp_path, content) == ""
    assert lake.objects["new"] == content
    assert len(through_gateway(lake)) == 1


def test_later_it_is_tried_again(
    lake: PresigningLake, objects: LakeFSObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presigned, "REST_SECONDS", 0.0)
    lake.break_next("GET /store/", status(503))
    assert [read(objects), read(objects)] == [b"content"] * 2
    assert len(through_gateway(lake)) == 1
    assert len(lake.lines("GET /store/")) == 2


# A store that has answered, and then fails


@pytest.fixture
def proven(lake: PresigningLake, objects: LakeFSObjects) -> LakeFSObjects:
    read(objects)
    lake.requests.clear()
    return objects


def test_an_outage_of_the_store_is_waited_for(lake: PresigningLake, proven: LakeFSObjects) -> None:
    lake.break_next("GET /store/", status(503))
    lake.break_next("GET /store/", cut)
    assert read(proven) == b"content"
    assert len(lake.lines("GET /store/")) == 3
    assert through_gateway(lake) == []


def test_one_that_does_not_end_says_what_else_can_be_done(
    lake: PresigningLake, proven: LakeFSObjects
) -> None:
    lake.break_next("GET /store/", status(503), times=100_000)
    with pytest.raises(BackendUnavailableError, match=r"the object store .* 503") as caught:
        read(proven)
    assert "PERAGO_TRANSFER=gateway" in str(caught.value.hint)
    assert through_gateway(lake) == []


def test_an_expired_address_is_asked_for_anew(lake: PresigningLake, proven: LakeFSObjects) -> None:
    """It was given out together with the one of the object before."""
    lake.expire()
    assert read(proven, "tiny") == b"another"
    assert [line.split("/")[-1] for line in lake.lines("GET /api/")] == ["stat"]
    assert len(lake.lines("GET /store/")) == 2


def test_so_is_one_that_is_refused_without_a_length(
    lake: PresigningLake, proven: LakeFSObjects
) -> None:
    """As AWS S3 refuses, on a connection that it keeps open."""
    lake.expire()
    lake.break_next("GET /store/", chunked)
    began = monotonic()
    assert read(proven, "tiny") == b"another"
    assert monotonic() - began < connection(lake).read_timeout / 2
    assert len(lake.lines("GET /store/")) == 2
    assert through_gateway(lake) == []


def test_so_is_the_one_of_a_large_object_by_all_of_its_pieces_once(
    lake: PresigningLake, proven: LakeFSObjects
) -> None:
    pieces = proven.read(REPOSITORY, COMMIT, "large", len(LARGE))
    first = next(pieces)
    lake.expire()
    assert b"".join([first, *pieces]) == LARGE
    assert read(proven, "large", len(LARGE)) == LARGE


@pytest.mark.parametrize("refusal", [400, 401, 403])
def test_an_address_that_is_refused_anew_is_an_error_without_what_the_store_says(
    lake: PresigningLake, proven: LakeFSObjects, refusal: int
) -> None:
    text = f"<Error><Code>SignatureDoesNotMatch</Code><Signature>{SIGNATURE}</Signature></Error>"
    lake.break_next("GET /store/", status(refusal, text.encode()), times=2)
    with pytest.raises(Exception, match=f"{refusal} SignatureDoesNotMatch") as caught:
        read(proven)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SIGNATURE not in shown
    if refusal == 403:
        assert isinstance(caught.value, BackendDeniedError)
        assert "PERAGO_TRANSFER=gateway" in str(caught.value.hint)


def test_an_object_that_the_store_has_lost_is_not_found(
    lake: PresigningLake, proven: LakeFSObjects
) -> None:
    lake.break_next("GET /store/", status(404, b"<Error><Code>NoSuchKey</Code></Error>"))
    with pytest.raises(NotFoundError, match="NoSuchKey"):
        read(proven)


def test_a_redirect_is_not_followed(lake: PresigningLake, proven: LakeFSObjects) -> None:
    with PresigningLake() as other:
        elsewhere = {"Location": f"{other.url}/elsewhere"}
        lake.break_next("GET /store/", lambda _: Reply(307, headers=elsewhere), times=100_000)
        with pytest.raises(BackendUnavailableError, match="307"):
            read(proven)
        assert other.requests == []


# Uploads in parts


def test_each_part_goes_with_its_md5(
    lake: PresigningLake, proven: LakeFSObjects, tmp_path: Path
) -> None:
    write(proven, tmp_path, LARGE)
    puts = [asked for asked in lake.requests if asked.line.startswith("PUT /store/")]
    assert len(puts) == 3
    assert [it.headers.get("content-md5") for it in puts] == [as_base64(it.body) for it in puts]


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize("parts", [["2"], ["1"], ["3", "1"]], ids=" ".join)
def test_a_part_that_arrives_with_another_byte_is_sent_again(
    lake: PresigningLake,
    proven: LakeFSObjects,
    tmp_path: Path,
    parts: list[str],
    *,
    compares: bool,
) -> None:
    """Whether the store compares it with its MD5, or only says what it has."""
    lake.checks_content = compares
    lake.damaged_parts = list(parts)
    digest = Digest(len(LARGE))
    digest.update(memoryview(LARGE))
    assert write(proven, tmp_path, LARGE) == digest.text()
    assert lake.objects["new"] == LARGE
    assert len(lake.lines("PUT /store/")) == 3 + len(parts)


@pytest.mark.parametrize("compares", [True, False])
def test_one_that_always_does_is_never_put_on_the_branch(
    lake: PresigningLake, proven: LakeFSObjects, tmp_path: Path, *, compares: bool
) -> None:
    lake.checks_content = compares
    lake.damaged_parts = ["2"] * 1000
    with pytest.raises(BackendError, match=r"another content|BadDigest"):
        write(proven, tmp_path, LARGE)
    assert "new" not in lake.objects
    assert f"PUT {STAGING}/pmpu/u" not in lake.lines()
    assert lake.lines(f"DELETE {STAGING}") == [f"DELETE {STAGING}/pmpu/u"]


def test_the_address_of_a_part_that_expired_is_asked_for_anew(
    lake: PresigningLake, proven: LakeFSObjects, tmp_path: Path
) -> None:
    def expire(reply: Reply) -> Reply:
        lake.expire()
        return reply

    lake.break_next(f"POST {STAGING}/pmpu", expire)
    write(proven, tmp_path, LARGE)
    assert lake.objects["new"] == LARGE
    assert len(lake.lines(f"PUT {STAGING}/pmpu/u/parts/")) == 3


def test_parts_that_cannot_be_written_are_given_up(
    lake: PresigningLake, proven: LakeFSObjects, tmp_path: Path
) -> None:
    lake.break_next("PUT /store/", status(503), times=100_000)
    with pytest.raises(BackendUnavailableError):
        write(proven, tmp_path, LARGE)
    assert lake.lines(f"DELETE {STAGING}") == [f"DELETE {STAGING}/pmpu/u"]
    assert "new" not in lake.objects


@pytest.mark.parametrize("fault", [cut, status(503)])
def test_a_lost_reply_to_the_last_request_is_found_on_the_branch(
    lake: PresigningLake,
    proven: LakeFSObjects,
    tmp_path: Path,
    fault: Callable[[Reply], Reply | None],
) -> None:
    """LakeFS carried the request out, and would refuse another one."""
    lake.break_next(f"PUT {STAGING}/pmpu/u", fault)
    write(proven, tmp_path, LARGE)
    assert lake.objects["new"] == LARGE
    assert lake.lines(f"PUT {STAGING}/pmpu/u") == [f"PUT {STAGING}/pmpu/u"]


def test_what_is_lost_on_the_way_of_a_whole_object_is_sent_again(
    lake: PresigningLake, proven: LakeFSObjects, tmp_path: Path
) -> None:
    content = bytes(SMALLEST_WRITTEN)
    for line in (f"GET {STAGING}/backing", "PUT /store/", f"PUT {STAGING}/backing"):
        lake.break_next(line, cut)
    assert write(proven, tmp_path, content) == md5(content)
    assert lake.objects["new"] == content
    assert len(lake.lines("PUT ")) == 4
