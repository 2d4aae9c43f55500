"""Many small requests on a few connections: what goes well is taken, and the rest is left out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from perago.http_client import deadline
from perago.lakefs import batch
from perago.lakefs.batch import BatchRequest
from perago.lakefs.store_client import SplitAddress, StoreClient, request_head
from support.tls import https_before

SECONDS = 10.0
# Long enough for an answer that comes, short enough to wait for one that does not.
PATIENCE = 0.5


class ScriptedServer:
    """Answers each request with the parts that ``script`` returns for its path, or hangs up."""

    def __init__(self, script: Callable[[str], list[bytes] | None]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self._opened: list[socket.socket] = []

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        for opened in self._opened:
            opened.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                opened, _ = self._listening.accept()
                self.connections += 1
                self._opened.append(opened)
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with suppress(OSError, ValueError), opened, opened.makefile("rb") as lines:
            while line := lines.readline():
                path, length = line.split()[1].decode(), 0
                while (field := lines.readline()) != b"\r\n":
                    if field.lower().startswith(b"content-length:"):
                        length = int(field.split(b":")[1])
                self.bodies.append(lines.read(length))
                self.asked.append(path)
                parts = self._script(path)
                if parts is None:
                    return
                for part in parts:
                    opened.sendall(part)
                    time.sleep(0.001 if len(parts) > 1 else 0)


@pytest.fixture
def client() -> Iterator[StoreClient]:
    with closing(StoreClient(connect_timeout=SECONDS, read_timeout=PATIENCE)) as opened:
        yield opened


def good(path: str, fields: str = "") -> bytes:
    body = content_of(path)
    return f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body


def content_of(path: str) -> bytes:
    return f"the content of {path}".encode()


def paths(count: int) -> list[str]:
    return [f"/{number:04}" for number in range(count)]


def request(url: str, path: str, content: bytes = b"") -> BatchRequest[str]:
    split = SplitAddress.of(url + path)
    head = request_head("POST", split, {"Content-Length": str(len(content))})
    return BatchRequest(path, split.endpoint, head + content, 200, len(content_of(path)))


def taken(
    client: StoreClient, url: str, asked: list[str], at_once: int = 4, seconds: float = SECONDS
) -> dict[str, bytes]:
    requests = (request(url, path) for path in asked)
    found = client.exchange_all(requests, at_once=at_once, seconds=seconds)
    return {path: bytes(content) for path, content in found}


def expected(asked: list[str]) -> dict[str, bytes]:
    return {path: content_of(path) for path in asked}


def test_every_item_gets_its_own_answer_and_connections_are_used_again(client: StoreClient) -> None:
    with ScriptedServer(lambda path: [good(path)]) as server:
        assert taken(client, server.url, paths(100)) == expected(paths(100))
        assert taken(client, server.url, paths(50)) == expected(paths(50))
        assert sorted(server.asked) == sorted(paths(100) + paths(50))
        assert server.connections == 4


def test_nothing_to_ask_opens_no_connection(client: StoreClient) -> None:
    with ScriptedServer(lambda path: [good(path)]) as server:
        assert taken(client, server.url, []) == {}
        assert server.connections == 0


def test_an_answer_may_come_in_parts_of_any_size(client: StoreClient) -> None:
    def in_parts(path: str) -> list[bytes]:
        whole, size = good(path), int(path[1:]) % 40 + 5
        return [whole[start : start + size] for start in range(0, len(whole), size)]

    with ScriptedServer(in_parts) as server:
        assert taken(client, server.url, paths(60)) == expected(paths(60))


def test_a_large_request_is_sent_as_the_server_takes_it(client: StoreClient) -> None:
    contents = {path: path.encode() * 50_000 for path in paths(8)}
    with ScriptedServer(lambda path: [good(path)]) as server:
        requests = (request(server.url, path, contents[path]) for path in contents)
        found = dict(client.exchange_all(requests, at_once=3, seconds=SECONDS))
        assert {path: bytes(found[path]) for path in found} == expected(paths(8))
        assert sorted(server.bodies) == sorted(contents.values())


def test_a_server_may_close_each_connection_after_its_answer(client: StoreClient) -> None:
    with ScriptedServer(lambda path: [good(path, "Connection: close\r\n")]) as server:
        assert taken(client, server.url, paths(30)) == expected(paths(30))
        assert server.connections == 30


ODD: dict[str, Callable[[str], list[bytes] | None]] = {
    "another status": lambda path: [good(path).replace(b"200 OK", b"503 Busy")],
    "a shorter content": lambda path: [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"],
    "more than it says": lambda path: [good(path) + b"and more"],
    "no length": lambda path: [b"HTTP/1.1 200 OK\r\n\r\n" + content_of(path)],
    "chunks": lambda path: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"],
    "no HTTP": lambda path: [b"220 mail.example.com ESMTP\r\n\r\n"],
    "an endless head": lambda path: [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000],
    "an end within the content": lambda path: [good(path)[:-1]],
    "no answer at all": lambda path: None,
}


@pytest.mark.parametrize("odd", ODD)
def test_what_has_an_odd_answer_is_left_out_and_the_rest_is_taken(
    client: StoreClient, odd: str
) -> None:
    bad = {"/0010", "/0020"}
    with ScriptedServer(lambda path: ODD[odd](path) if path in bad else [good(path)]) as server:
        rest = [path for path in paths(40) if path not in bad]
        assert taken(client, server.url, paths(40)) == expected(rest)


@pytest.mark.parametrize("odd", ODD)
def test_a_server_in_trouble_is_not_asked_for_everything(client: StoreClient, odd: str) -> None:
    with ScriptedServer(ODD[odd]) as server:
        assert taken(client, server.url, paths(1000)) == {}
        assert len(server.asked) <= 4


def test_a_server_that_is_silent_or_drips_is_not_waited_for(client: StoreClient) -> None:
    def drip(path: str) -> list[bytes]:
        return [bytes([byte]) for byte in good(path, "X: y\r\n" * 2000)]

    began = time.monotonic()
    with ScriptedServer(lambda path: []) as silent:
        assert taken(client, silent.url, paths(9)) == {}
    with ScriptedServer(drip) as dripping:
        assert taken(client, dripping.url, paths(9), seconds=PATIENCE) == {}
    assert time.monotonic() - began < SECONDS


def test_no_request_goes_beyond_the_deadline_of_the_caller(client: StoreClient) -> None:
    with ScriptedServer(lambda path: [good(path)]) as server, deadline(0.0):
        assert taken(client, server.url, paths(9)) == {}


def test_a_server_that_cannot_be_reached_leaves_all_out(client: StoreClient) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert taken(client, url, paths(1000)) == {}


def test_an_item_of_another_server_is_left_out(client: StoreClient) -> None:
    with (
        ScriptedServer(lambda path: [good(path)]) as server,
        ScriptedServer(lambda path: [good(path)]) as other,
    ):
        asked = [request(server.url, "/0001"), request(other.url, "/0002")]
        found = client.exchange_all(iter(asked), at_once=4, seconds=SECONDS)
        assert [path for path, _ in found] == ["/0001"]
        assert other.connections == 0


def test_the_next_item_is_asked_for_when_there_is_room_for_it(client: StoreClient) -> None:
    """So that the contents of thousands of uploads are not in memory together."""
    begun: list[str] = []

    def requests(url: str) -> Iterator[BatchRequest[str]]:
        for path in paths(100):
            begun.append(path)
            yield request(url, path)

    with ScriptedServer(lambda path: [good(path)]) as server:
        found = client.exchange_all(requests(server.url), at_once=4, seconds=SECONDS)
        for count, _ in enumerate(found, start=1):
            assert len(begun) <= count + 4


def test_an_error_of_the_caller_ends_the_batch(client: StoreClient) -> None:
    def requests(url: str) -> Iterator[BatchRequest[str]]:
        yield request(url, "/0001")
        raise RuntimeError("the file changed")

    with (
        ScriptedServer(lambda path: [good(path)]) as server,
        pytest.raises(RuntimeError, match="the file changed"),
    ):
        list(client.exchange_all(requests(server.url), at_once=4, seconds=SECONDS))


def test_a_signal_while_a_request_begins_ends_the_batch(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch._Line, "begin", interrupted)
    with ScriptedServer(lambda path: [good(path)]) as server, pytest.raises(KeyboardInterrupt):
        taken(client, server.url, paths(9))


def test_answers_come_through_tls(tmp_path: Path) -> None:
    with (
        ScriptedServer(lambda path: [good(path)]) as server,
        https_before(server.url, tmp_path) as front,
    ):
        pem = front.ca_bundle.read_text()
        trusting = StoreClient(connect_timeout=SECONDS, read_timeout=SECONDS, pem=pem)
        with closing(trusting) as client:
            assert taken(client, front.url, paths(40)) == expected(paths(40))
        unknown = StoreClient(connect_timeout=SECONDS, read_timeout=SECONDS)
        with closing(unknown) as client:
            assert taken(client, front.url, paths(40)) == {}
