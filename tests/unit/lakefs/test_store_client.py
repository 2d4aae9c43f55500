"""Requests to an object store: pieces come and go whole, and no error tells an address."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.http_client import RequestError, tls_context
from perago.lakefs import store_connection
from perago.lakefs.store_client import StoreClient, host_of
from perago.lakefs.store_connection import FileError
from support.garbage_server import ENDLESS, GARBAGE, GarbageServer, answer
from support.presigning_lake import SIGNATURE, PresigningLake, as_base64, chunked, in_chunks
from support.tls import https_before
from support.waiting import joined

SECONDS = 10.0
PLACE = f"/store/o/{b'key'.hex()}?{SIGNATURE}&number=1"


@pytest.fixture
def client() -> Iterator[StoreClient]:
    with closing(StoreClient(connect_timeout=SECONDS, read_timeout=SECONDS)) as opened:
        yield opened


@pytest.fixture
def lake() -> Iterator[PresigningLake]:
    with PresigningLake() as running:
        running.objects["key"] = b"0123456789"
        yield running


def test_content_comes_whole_or_in_part(client: StoreClient, lake: PresigningLake) -> None:
    whole = client.get(lake.url + PLACE, 10, seconds=SECONDS)
    part = client.get(lake.url + PLACE, 3, start=4, seconds=SECONDS)
    assert (whole.status, bytes(whole.content)) == (200, b"0123456789")
    assert (part.status, bytes(part.content)) == (206, b"456")


def test_content_goes_with_its_length_and_the_tag_comes_without_quotes(
    client: StoreClient, lake: PresigningLake
) -> None:
    headers = {"Content-MD5": as_base64(b"content")}
    found = client.put(lake.url + PLACE, b"content", headers, seconds=SECONDS)
    assert (found.status, found.etag) == (200, "9a0364b9e99bb480dd25e1f0284c8555")
    (asked,) = lake.requests
    assert asked.body == b"content"
    assert asked.headers["content-md5"] == headers["Content-MD5"]
    assert asked.headers["host"] == lake.url.removeprefix("http://")


def test_what_is_no_success_is_left_to_the_caller(
    client: StoreClient, lake: PresigningLake
) -> None:
    lake.expire()
    lake.expire()
    refused = client.get(lake.url + PLACE.replace("=1", "=0"), 10, seconds=SECONDS)
    assert refused.status == 403
    assert b"AccessDenied" in bytes(refused.content)


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        ("200 OK", b"short", "5 bytes instead of 7"),
        ("200 OK", b"too long for it", "15 bytes instead of 7"),
    ],
)
def test_content_of_another_length_is_none(
    client: StoreClient, head: str, body: bytes, why: str
) -> None:
    with (
        GarbageServer(lambda: iter([answer(head, body)])) as server,
        pytest.raises(RequestError, match=why),
    ):
        client.get(server.url + PLACE, 7, seconds=SECONDS)


def test_another_part_of_an_object_is_not_the_one_that_was_asked_for(client: StoreClient) -> None:
    other = answer("206 Partial", b"0123456", headers="Content-Range: bytes 0-6/20\r\n")
    with (
        GarbageServer(lambda: iter([other])) as server,
        pytest.raises(RequestError, match="another part"),
    ):
        client.get(server.url + PLACE, 7, start=7, seconds=SECONDS)


def test_a_store_need_not_say_how_long_the_whole_object_is(client: StoreClient) -> None:
    part = answer("206 Partial", b"0123456", headers="Content-Range: bytes 7-13/*\r\n")
    with GarbageServer(lambda: iter([part])) as server:
        got = client.get(server.url + PLACE, 7, start=7, total=20, seconds=SECONDS)
    assert bytes(got.content) == b"0123456"


def test_a_connection_is_used_again(client: StoreClient, lake: PresigningLake) -> None:
    for _ in range(3):
        client.get(lake.url + PLACE, 10, seconds=SECONDS)
        client.put(lake.url + PLACE, b"content", {}, seconds=SECONDS)
    assert lake.connections == 1


def test_a_connection_that_waited_too_long_is_not(
    client: StoreClient, lake: PresigningLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_connection, "_KEEP_ALIVE_SECONDS", -1.0)
    for _ in range(2):
        client.get(lake.url + PLACE, 10, seconds=SECONDS)
    assert lake.connections == 2


def test_nor_is_one_that_the_store_has_closed(client: StoreClient) -> None:
    kept = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ncontent"
    with GarbageServer(lambda: iter([kept])) as server:
        for _ in range(3):
            found = client.get(server.url + PLACE, 7, seconds=SECONDS)
            assert bytes(found.content) == b"content"
            # Until its end of the connection has arrived here.
            time.sleep(0.1)
        assert len(server.requests) == 3


def test_a_store_may_refuse_an_address_before_it_takes_the_content(client: StoreClient) -> None:
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"

    def refuse(listener: socket.socket) -> None:
        end, _ = listener.accept()
        with end:
            end.recv(1 << 10)
            end.sendall(refusal)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{PLACE}"
        assert client.put(url, bytes(32 << 20), {}, seconds=SECONDS).status == 403
        joined(thread)


# Answers that do not say how long they are


def test_the_end_of_a_refusal_in_chunks_is_seen_while_the_connection_stays_open(
    client: StoreClient, lake: PresigningLake
) -> None:
    """As AWS S3 refuses."""
    lake.expire()
    lake.expire()
    began = time.monotonic()
    for _ in range(2):
        lake.break_next("GET /store/", chunked)
        refused = client.get(lake.url + PLACE.replace("=1", "=0"), 10, seconds=SECONDS)
        assert refused.status == 403
        assert b"<Code>AccessDenied</Code>" in bytes(refused.content)
    assert time.monotonic() - began < SECONDS / 2
    assert lake.connections == 1


def test_so_is_the_end_of_what_is_said_to_a_write(
    client: StoreClient, lake: PresigningLake
) -> None:
    began = time.monotonic()
    for _ in range(2):
        lake.break_next("PUT /store/", chunked)
        found = client.put(lake.url + PLACE, b"content", {}, seconds=SECONDS)
        assert (found.status, found.etag) == (200, "9a0364b9e99bb480dd25e1f0284c8555")
    assert time.monotonic() - began < SECONDS / 2
    assert lake.connections == 1


def test_content_may_come_in_chunks(client: StoreClient, lake: PresigningLake) -> None:
    lake.objects["key"] = content = bytes(range(256)) * 1000
    lake.break_next("GET /store/", chunked, times=2)
    whole = client.get(lake.url + PLACE, len(content), seconds=SECONDS)
    part = client.get(lake.url + PLACE, 200_000, start=4, seconds=SECONDS)
    assert bytes(whole.content) == content
    assert bytes(part.content) == content[4:200_004]
    assert lake.connections == 1


@pytest.mark.parametrize("is_chunked", [False, True], ids=["whole", "in chunks"])
def test_a_part_goes_to_its_place_in_a_file(
    client: StoreClient,
    lake: PresigningLake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_chunked: bool,
) -> None:
    monkeypatch.setattr(store_connection, "_BUFFER", 1000)
    lake.objects["key"] = content = bytes(range(256)) * 1000
    if is_chunked:
        lake.break_next("GET /store/", chunked, times=2)
    with (tmp_path / "file").open("w+b") as file:
        for start, length in ((200_000, 56_000), (0, 200_000)):
            answered = client.save(
                lake.url + PLACE,
                length,
                file.fileno(),
                start=start,
                total=len(content),
                seconds=SECONDS,
                headers={"X-Asked": "1"},
            )
            assert answered.status == 206
    assert (tmp_path / "file").read_bytes() == content
    assert lake.connections == 1
    assert {asked.headers["x-asked"] for asked in lake.requests} == {"1"}


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ("bytes 0-6/20", "another part"),
        ("bytes 7-13/21", "another length"),
        ("bytes 7-13/20", "6 bytes instead of 7"),
    ],
)
def test_nothing_else_goes_into_a_file(
    client: StoreClient, tmp_path: Path, stated: str, why: str
) -> None:
    said = answer("206 Partial", b"012345", headers=f"Content-Range: {stated}\r\n")
    with (
        (tmp_path / "file").open("w+b") as file,
        GarbageServer(lambda: iter([said])) as server,
        pytest.raises(RequestError, match=why),
    ):
        client.save(server.url + PLACE, 7, file.fileno(), start=7, total=20, seconds=SECONDS)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_file_that_cannot_be_written_is_no_failure_of_the_store(
    client: StoreClient, lake: PresigningLake, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file, pytest.raises(FileError):
        client.save(lake.url + PLACE, 10, file.fileno(), start=0, total=10, seconds=SECONDS)
    # Its answer was not read to the end.
    client.get(lake.url + PLACE, 10, seconds=SECONDS)
    assert lake.connections == 2


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = CHUNKED.replace(b"200 OK", b"403 Forbidden")
LAST = b"0\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        in_chunks(b"content", 1),
        b"0007\r\ncontent\r\n0\r\n\r\n",
        b'4;name="value";other\r\ncont\r\n3 ;x\r\nent\r\n0;last\r\n\r\n',
        b"7\r\ncontent\r\n0\r\nX-Checksum: 1\r\nX-More: 2\r\n\r\n",
    ],
    ids=["one by one", "zeros", "extensions", "trailers"],
)
def test_chunks_may_have_whatever_http_allows(client: StoreClient, said: bytes) -> None:
    with GarbageServer(lambda: iter([CHUNKED, *(bytes([it]) for it in said)])) as server:
        assert bytes(client.get(server.url + PLACE, 7, seconds=SECONDS).content) == b"content"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (in_chunks(b"short"), "2 bytes before its end"),
        (in_chunks(b"too long for it"), "more than 7 bytes"),
        (in_chunks(b"contents", 4), "more than 7 bytes"),
        (b"fffffffffffffff\r\ncontent\r\n", "more than 7 bytes"),
    ],
)
def test_content_in_chunks_of_another_length_is_none(
    client: StoreClient, said: bytes, why: str
) -> None:
    with (
        GarbageServer(lambda: iter([CHUNKED + said])) as server,
        pytest.raises(RequestError, match=why),
    ):
        client.get(server.url + PLACE, 7, seconds=SECONDS)


@pytest.mark.parametrize("head", [CHUNKED, REFUSED], ids=["content", "refusal"])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "ended before"),
        (b"7\r\ncont", "3 bytes before its end"),
        (b"7\r\ncontent\r\n", "ended before"),
        (b"7\r\ncontent\r\n0\r\n", "ended before"),
        (b"7\r\ncontentX\r\n" + LAST, "not HTTP"),
        (b"-7\r\ncontent\r\n" + LAST, "not HTTP"),
        (b"0x7\r\ncontent\r\n" + LAST, "not HTTP"),
        (b"seven\r\ncontent\r\n" + LAST, "not HTTP"),
        (b"\r\ncontent\r\n" + LAST, "not HTTP"),
        (b"f" * 400 + b"\r\ncontent\r\n" + LAST, "not HTTP"),
    ],
)
def test_chunks_that_are_none_are_no_answer(
    client: StoreClient, head: bytes, said: bytes, why: str
) -> None:
    with (
        GarbageServer(lambda: iter([head + said])) as server,
        pytest.raises(RequestError, match=why) as caught,
    ):
        client.get(server.url + PLACE, 7, seconds=SECONDS)
    assert caught.value.sent


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        (b"", b"1;" + b"x" * 1000 + b"\r\n \r\n"),
        (b"1;", b"x" * 1000),
        (b"0\r\n", b"X-More: 1\r\n" * 100),
        (b"0\r\n", b"x" * 1000),
    ],
    ids=["extensions", "an extension", "trailers", "a trailer"],
)
@pytest.mark.parametrize("head", [CHUNKED, REFUSED], ids=["content", "refusal"])
def test_what_is_around_chunks_has_an_end(
    client: StoreClient, head: bytes, first: bytes, rest: bytes
) -> None:
    def endless() -> Iterator[bytes]:
        yield head + first
        while True:
            yield rest

    began = time.monotonic()
    with (
        GarbageServer(endless) as server,
        pytest.raises(RequestError, match=r"too long|more than 7 bytes"),
    ):
        client.get(server.url + PLACE, 7, seconds=SECONDS)
    assert time.monotonic() - began < SECONDS / 2


def test_chunks_that_drip_end_with_the_request(client: StoreClient) -> None:
    def dripping() -> Iterator[bytes]:
        yield REFUSED
        while True:
            yield b"1\r\n \r\n"
            time.sleep(0.05)

    began = time.monotonic()
    with GarbageServer(dripping) as server, pytest.raises(RequestError, match=r"in time|timed out"):
        client.get(server.url + PLACE, 7, seconds=1.0)
    assert time.monotonic() - began < SECONDS / 2


def test_of_a_long_refusal_only_the_start_is_read(client: StoreClient) -> None:
    def endless() -> Iterator[bytes]:
        yield REFUSED
        while True:
            yield in_chunks(bytes(10_000)).removesuffix(LAST)

    with GarbageServer(endless) as server:
        refused = client.get(server.url + PLACE, 7, seconds=SECONDS)
    assert (refused.status, len(refused.content)) == (403, 64 << 10)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_that_has_no_content_is_not_waited_for(client: StoreClient, status: str) -> None:
    """Whatever it says about a length."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: 7\r\nETag: x\r\n\r\n".encode()

    def answer_twice(listener: socket.socket) -> None:
        end, _ = listener.accept()
        with end:
            for _ in range(2):
                end.recv(1 << 10)
                end.sendall(head)
            end.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_twice, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{PLACE}"
        began = time.monotonic()
        found = [client.get(url, 7, seconds=SECONDS) for _ in range(2)]
    assert [(it.status, len(it.content)) for it in found] == [(int(status[:3]), 0)] * 2
    assert time.monotonic() - began < SECONDS / 2


@pytest.mark.parametrize(
    "fields",
    [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 7\r\n",
    ],
)
def test_content_that_is_encoded_otherwise_is_none(client: StoreClient, fields: str) -> None:
    head = f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode()
    with (
        GarbageServer(lambda: iter([head + in_chunks(b"content")])) as server,
        pytest.raises(RequestError),
    ):
        client.get(server.url + PLACE, 7, seconds=SECONDS)


def told(client: StoreClient, url: str) -> str:
    """What comes of a request, as text."""
    try:
        return f"status {client.get(url, 7, seconds=SECONDS).status}"
    except RequestError as error:
        return f"sent: {error}" if error.sent else f"not sent: {error}"


@pytest.mark.parametrize("kind", [kind for kind in GARBAGE if kind not in ENDLESS])
def test_no_error_tells_an_address(client: StoreClient, kind: str) -> None:
    with GarbageServer(GARBAGE[kind]) as server:
        text = told(client, server.url + PLACE)
    assert text.startswith(("sent: ", "status "))
    assert text != "status 200"
    assert SIGNATURE not in text


def test_an_address_that_is_none_is_not_told_either(client: StoreClient) -> None:
    for url in ("s3://bucket/key", "http://", "http://h:no/", "http://u:p@h/", "http://ä/", "x y"):
        text = told(client, f"{url}?{SIGNATURE}")
        assert text.startswith("not sent: the address")
        assert SIGNATURE not in text + host_of(f"{url}?{SIGNATURE}")


def test_an_address_may_hold_a_key_that_is_not_quoted(
    client: StoreClient, lake: PresigningLake
) -> None:
    client.put(f"{lake.url}/store/größe%20x?number=1&a=b+c", b"", {}, seconds=SECONDS)
    assert lake.lines() == ["PUT /store/gr%C3%B6%C3%9Fe%20x"]


def test_of_an_address_only_the_server_is_told() -> None:
    assert host_of(f"https://bucket.store.example.com/key?{SIGNATURE}") == (
        "https://bucket.store.example.com:443"
    )
    assert host_of("http://h/k") == "http://h:80"


def test_nothing_is_sent_to_a_store_that_is_not_there(client: StoreClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(RequestError, match="refused") as caught:
        client.get(f"http://127.0.0.1:{port}{PLACE}", 7, seconds=SECONDS)
    assert not caught.value.sent


def test_a_private_authority_is_trusted_besides_the_usual_ones(
    lake: PresigningLake, tmp_path: Path
) -> None:
    with https_before(lake.url, tmp_path) as front:
        pem = front.ca_bundle.read_text()
        url = f"{front.url}{PLACE}"
        with closing(StoreClient(connect_timeout=SECONDS, read_timeout=SECONDS)) as strict:
            with pytest.raises(RequestError, match="certificate") as caught:
                strict.get(url, 10, seconds=SECONDS)
            assert not caught.value.sent
        trusting = StoreClient(connect_timeout=SECONDS, read_timeout=SECONDS, pem=pem)
        with closing(trusting):
            assert bytes(trusting.get(url, 10, seconds=SECONDS).content) == b"0123456789"
        known = tls_context(None).cert_store_stats()["x509_ca"]
        both = tls_context(pem, and_usual=True).cert_store_stats()["x509_ca"]
        assert both > max(known, tls_context(pem).cert_store_stats()["x509_ca"])


def test_proxies_of_the_environment_are_ignored(
    client: StoreClient, lake: PresigningLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert client.get(lake.url + PLACE, 10, seconds=SECONDS).status == 200
