"""The fault proxy, before a small HTTP server in this process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from perago.testing import FaultProxy, HttpFault
from support.waiting import joined

BODY = b"x" * 1000


@dataclass
class Upstream:
    """A server that answers everything with 200 and keeps what it was asked for."""

    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)
    url: str = ""

    def note(self, method: str, path: str, body: bytes) -> None:
        with self.arrived:
            self.asked.append((method, path, body))
            self.arrived.notify_all()

    def await_requests(self, count: int, seconds: float = 5.0) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: len(self.asked) >= count, seconds)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    kept = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(1 << 16)
            self.close_connection = True
            if not self.raw_requestline or not self.parse_request():
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept.note(self.command, self.path, body)
            empty = "/empty" in self.path
            self.send_response(204 if empty else 200)
            if not empty:
                self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            if not empty and self.command != "HEAD":
                self.wfile.write(BODY)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}/api"
    yield kept
    server.shutdown()
    server.server_close()
    joined(thread)


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    with FaultProxy(upstream.url) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=5, trust_env=False) as opened:
        yield opened


def test_what_no_fault_is_for_passes_unchanged(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    assert client.get("/a?b=c").content == BODY
    assert client.post("/p", content=b"sent").content == BODY
    assert client.head("/h").headers["content-length"] == str(len(BODY))
    assert client.delete("/empty").status_code == 204
    assert client.put("/chunks", content=iter([b"in ", b"chunks"])).status_code == 200
    assert upstream.asked == [
        ("GET", "/api/a?b=c", b""),
        ("POST", "/api/p", b"sent"),
        ("HEAD", "/api/h", b""),
        ("DELETE", "/api/empty", b""),
        ("PUT", "/api/chunks", b"in chunks"),
    ]
    assert [(seen.method, seen.server_status) for seen in proxy.exchanges] == [
        ("GET", 200),
        ("POST", 200),
        ("HEAD", 200),
        ("DELETE", 204),
        ("PUT", 200),
    ]


def test_a_request_that_is_cut_before_never_reaches_the_server(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("POST", "/merge", HttpFault.cut_before())
    with pytest.raises(httpx.RemoteProtocolError):
        client.post("/merge")
    assert upstream.asked == []
    assert client.post("/merge").status_code == 200


def test_a_request_that_is_cut_after_was_carried_out(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("POST", "/merge", HttpFault.cut_after())
    with pytest.raises(httpx.RemoteProtocolError):
        client.post("/merge")
    assert upstream.asked == [("POST", "/api/merge", b"")]
    assert proxy.exchanges[0].server_status == 200


@pytest.mark.parametrize("path", ["/full", "/empty"])
def test_a_reply_that_is_cut_inside_arrives_in_part(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client, path: str
) -> None:
    proxy.inject("GET", path, HttpFault.cut_inside())
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(path)
    assert len(upstream.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_an_answered_request_never_reaches_the_server(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client, status: int
) -> None:
    proxy.inject("GET", "/a", HttpFault.answer(status))
    assert client.get("/a").status_code == status
    assert upstream.asked == []
    assert client.get("/a").status_code == 200


def test_a_page_looks_like_a_success(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("GET", "/a", HttpFault.page())
    reply = client.get("/a")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html"
    assert "<html>" in reply.text
    assert upstream.asked == []


def test_a_delayed_reply_is_carried_out_at_once(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("GET", "/a", HttpFault.delay(0.4))
    started = time.monotonic()
    assert client.get("/a").content == BODY
    assert time.monotonic() - started >= 0.4
    proxy.inject("GET", "/a", HttpFault.delay(0.5))
    with pytest.raises(httpx.ReadTimeout):
        client.get("/a", timeout=0.1)
    assert len(upstream.asked) == 2


@pytest.mark.parametrize("status", [504, None])
def test_a_late_request_reaches_the_server_after_its_client_gave_up(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client, status: int | None
) -> None:
    proxy.inject("POST", "/merge", HttpFault.late(0.3, status=status))
    if status is None:
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/merge", content=b"late")
    else:
        assert client.post("/merge", content=b"late").status_code == status
    assert upstream.asked == []
    assert not proxy.await_late(0.01)
    assert proxy.await_late(5)
    assert upstream.asked == [("POST", "/api/merge", b"late")]
    assert proxy.exchanges[0].server_status == 200


def test_a_late_request_is_not_delivered_after_the_proxy_was_closed(upstream: Upstream) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.inject("POST", "/merge", HttpFault.late(0.3))
        httpx.post(f"{proxy.url}/merge", trust_env=False)
    assert not upstream.await_requests(1, 0.5)


def test_a_request_is_held_until_it_is_released_also_when_its_client_is_gone(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    held = proxy.inject("POST", "/merge", HttpFault.hold_before())
    with suppress(httpx.ReadTimeout):
        client.post("/merge", timeout=0.1)
    assert held.happened.is_set()
    assert upstream.asked == []
    proxy.release()
    assert upstream.await_requests(1)


def test_a_held_reply_was_carried_out_before(
    upstream: Upstream, proxy: FaultProxy, client: httpx.Client
) -> None:
    held = proxy.inject("POST", "/merge", HttpFault.hold_after())
    asking = threading.Thread(target=client.post, args=("/merge",))
    asking.start()
    assert held.happened.wait(5)
    assert len(upstream.asked) == 1
    assert asking.is_alive()
    proxy.release()
    asking.join(5)
    assert not asking.is_alive()


def test_a_fault_happens_at_the_nth_matching_request_and_once(
    proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("GET", r"/a/\d+$", HttpFault.answer(503), nth=2)
    statuses = [client.get(path).status_code for path in ("/a/1", "/b/1", "/a/2", "/a/3")]
    assert statuses == [200, 200, 503, 200]
    assert client.post("/a/9").status_code == 200
    assert proxy.pending == []


def test_faults_for_the_same_request_happen_one_after_the_other(
    proxy: FaultProxy, client: httpx.Client
) -> None:
    proxy.inject("GET", "/a", HttpFault.answer(503))
    proxy.inject("GET", "/a", HttpFault.answer(429))
    assert [client.get("/a").status_code for _ in range(3)] == [503, 429, 200]


def test_a_fault_that_did_not_happen_is_pending_until_it_is_cleared(
    proxy: FaultProxy, client: httpx.Client
) -> None:
    injected = proxy.inject("GET", "/never", HttpFault.cut_before())
    client.get("/a")
    assert proxy.pending == [injected]
    assert not injected.happened.is_set()
    proxy.clear()
    assert proxy.pending == []
    assert client.get("/never").status_code == 200


def test_requests_of_many_threads_meet_exactly_the_injected_faults(proxy: FaultProxy) -> None:
    for _ in range(20):
        proxy.inject("GET", "/a", HttpFault.answer(503))
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=proxy.url, trust_env=False) as own:
            statuses.extend(own.get("/a").status_code for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    assert statuses.count(503) == 20
    assert statuses.count(200) == 60


def test_without_a_server_the_connection_is_cut() -> None:
    with FaultProxy("http://127.0.0.1:9") as proxy, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(proxy.url, trust_env=False)


def test_an_address_with_tls_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an http:// address"):
        FaultProxy("https://lakefs.example.com")


def test_the_names_of_faults_say_what_happens() -> None:
    faults = [
        HttpFault.cut_before(),
        HttpFault.answer(503),
        HttpFault.delay(2.5),
        HttpFault.late(3),
        HttpFault.late(3, status=None),
    ]
    assert [str(fault) for fault in faults] == [
        "cut-before",
        "answer-503",
        "delay-2.5s",
        "late-504-3s",
        "late-cut-3s",
    ]


def test_the_fakes_do_not_load_an_http_server() -> None:
    probe = "import sys, perago.testing; print('perago.testing.fault_proxy' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "False\n"
