"""Put a proxy that fails on demand before a real server.

It understands HTTP and runs on loopback. Every fault is named beforehand: which request, the how
manieth of its kind, and what goes wrong.

    with FaultProxy("http://127.0.0.1:8000") as proxy:
        proxy.inject("POST", r"/merge/main$", HttpFault.cut_after())
        client = connect(proxy.url)
        ...
        assert proxy.pending == []      # each fault has happened

Messages are held in memory while they pass; the proxy is made for tests, not for large objects.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from perago.servers.loopback import LOOPBACK
from perago.testing.http_faults import Exchange, HttpFault, Injected

_PAGE = b"<!DOCTYPE html><html><body><h1>Please sign in</h1></body></html>"
# Headers that concern one connection and not the message.
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})
_UPSTREAM_SECONDS = 120.0
_CLOSE_SECONDS = 10.0
_LONGEST_LINE = 65536


@dataclass(frozen=True, slots=True)
class _Message:
    """A request, ready to be sent on."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def head(self) -> bytes:
        reason = http.client.responses.get(self.status, "")
        lines = [f"HTTP/1.1 {self.status} {reason}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class FaultProxy:
    """Forwards requests to a server, and lets the injected faults happen. Thread-safe."""

    def __init__(self, server: str) -> None:
        """``server`` is the address of a server without TLS, with or without a path."""
        parts = urlsplit(server)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the proxy needs an http:// address, not {server!r}")
        self._upstream = (parts.hostname, parts.port or 80)
        self._lock = threading.Lock()
        self._pending: list[Injected] = []
        self._exchanges: list[Exchange] = []
        self._late: list[threading.Timer] = []
        self._clients: set[socket.socket] = set()
        self._released = threading.Event()
        self._listener = _Listener(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="fault-proxy", daemon=True
        )
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}{parts.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. A late delivery whose time has not come is never made."""
        self._listener.shutdown()
        self._listener.server_close()
        self.release()
        with self._lock:
            late, clients = list(self._late), list(self._clients)
        for timer in late:
            timer.cancel()
        for client in clients:
            # Shut down, not only closed: a thread that reads from it does not notice a close.
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in (*late, self._thread):
            thread.join(_CLOSE_SECONDS)

    def inject(self, method: str, path: str, fault: HttpFault, *, nth: int = 1) -> Injected:
        """Let a fault happen once, at the ``nth`` request that matches from now on.

        ``method`` is a regular expression for the whole method, ``path`` one that is searched for
        in the path with its query. Where several faults are due, the one injected first happens,
        and the next one at the next matching request.
        """
        injected = Injected(method, path, fault, nth)
        with self._lock:
            self._pending.append(injected)
            if fault.kind.startswith("hold"):
                self._released.clear()
        return injected

    @property
    def pending(self) -> list[Injected]:
        """The faults that have not happened: a test that has some proves nothing."""
        with self._lock:
            return list(self._pending)

    @property
    def exchanges(self) -> list[Exchange]:
        """All requests so far, in the order of their arrival."""
        with self._lock:
            return list(self._exchanges)

    def clear(self) -> None:
        """Forget the faults that have not happened."""
        with self._lock:
            self._pending.clear()

    def release(self) -> None:
        """Let go what is held."""
        self._released.set()

    def await_late(self, seconds: float) -> bool:
        """Wait until every late delivery was made; whether that was so within ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._lock:
            late = list(self._late)
        for timer in late:
            timer.join(max(0.0, deadline - time.monotonic()))
        return not any(timer.is_alive() for timer in late)

    # What the connections' threads call

    @contextmanager
    def _connected(self, client: socket.socket) -> Iterator[None]:
        with self._lock:
            self._clients.add(client)
        try:
            yield
        finally:
            with self._lock:
                self._clients.discard(client)

    def _handle(self, request: _Message) -> bytes | None:
        """The bytes to send; None and a part of a reply mean that the connection is cut."""
        exchange, injected = self._take(request)
        if injected is None:
            reply = self._forward(request, exchange)
            return reply.head() + reply.body if reply is not None else None
        try:
            return self._fail(injected.fault, request, exchange, injected)
        finally:
            injected.happened.set()

    def _take(self, request: _Message) -> tuple[Exchange, Injected | None]:
        exchange = Exchange(request.method, request.path)
        due: Injected | None = None
        with self._lock:
            self._exchanges.append(exchange)
            for injected in self._pending:
                if injected.matches(request.method, request.path):
                    injected.left = max(injected.left - 1, 0)
                    if due is None and injected.left == 0:
                        due = injected
            if due is not None:
                self._pending.remove(due)
                exchange.fault = due.fault
        return exchange, due

    def _fail(
        self, fault: HttpFault, request: _Message, exchange: Exchange, injected: Injected
    ) -> bytes | None:
        match fault.kind:
            case "cut_before":
                return None
            case "answer":
                return _empty(fault.status or 503)
            case "page":
                headers = [("Content-Type", "text/html"), ("Content-Length", str(len(_PAGE)))]
                return _Reply(200, headers, _PAGE).head() + _PAGE
            case "late":
                self._deliver_late(request, exchange, fault.seconds)
                return None if fault.status is None else _empty(fault.status)
            case "hold_before":
                injected.happened.set()
                self._released.wait()
            case _:
                pass
        reply = self._forward(request, exchange)
        if reply is None or fault.kind == "cut_after":
            return None
        if fault.kind == "cut_inside":
            head = reply.head()
            if len(reply.body) < 2:
                return head[: len(head) // 2]
            return head + reply.body[: len(reply.body) // 2]
        if fault.kind == "delay":
            injected.happened.set()
            time.sleep(fault.seconds)
        if fault.kind == "hold_after":
            injected.happened.set()
            self._released.wait()
        return reply.head() + reply.body

    def _deliver_late(self, request: _Message, exchange: Exchange, seconds: float) -> None:
        timer = threading.Timer(seconds, self._forward, (request, exchange))
        timer.daemon = True
        with self._lock:
            self._late.append(timer)
        timer.start()

    def _forward(self, request: _Message, exchange: Exchange) -> _Reply | None:
        """Ask the server; None if it is not there or breaks off."""
        server = http.client.HTTPConnection(*self._upstream, timeout=_UPSTREAM_SECONDS)
        try:
            server.putrequest(
                request.method, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers:
                server.putheader(name, value)
            server.endheaders(request.body or None)
            response = server.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            server.close()
        exchange.server_status = response.status
        headers = [
            (name, value)
            for name, value in response.getheaders()
            if name.lower() not in _HOP_BY_HOP
        ]
        has_length = any(name.lower() == "content-length" for name, _ in headers)
        if not has_length and response.status not in {204, 304} and request.method != "HEAD":
            headers.append(("Content-Length", str(len(body))))
        return _Reply(response.status, headers, body)


def _empty(status: int) -> bytes:
    return _Reply(status, [("Content-Length", "0")], b"").head()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # The threads end when their connections are shut down.
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__((LOOPBACK, 0), _Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Connection(BaseHTTPRequestHandler):
    """One connection of a client, with any number of requests."""

    server: _Listener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with self.server.proxy._connected(self.connection), suppress(OSError):
            super().handle()

    def handle_one_request(self) -> None:
        """Read one request and answer it, or cut the connection."""
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(_LONGEST_LINE + 1)
        if not self.raw_requestline or not self.parse_request():
            return
        keep = not self.close_connection
        self.close_connection = True
        body = self._read_body()
        headers = [
            (name, value)
            for name, value in self.headers.items()
            if name.lower() not in _HOP_BY_HOP | {"content-length"}
        ]
        if body or self.command in {"POST", "PUT", "PATCH"}:
            headers.append(("Content-Length", str(len(body))))
        reply = self.server.proxy._handle(_Message(self.command, self.path, headers, body))
        if reply is None:
            return
        self.wfile.write(reply)
        self.close_connection = not keep or self._is_cut(reply)

    def _is_cut(self, reply: bytes) -> bool:
        """Whether fewer bytes were sent than the reply announces."""
        head, end, body = reply.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not end:
            return True
        return self.command != "HEAD" and length is not None and len(body) < int(length[1])

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks: list[bytes] = []
        while size := int(self.rfile.readline(_LONGEST_LINE).partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline(_LONGEST_LINE)
        while self.rfile.readline(_LONGEST_LINE).strip():
            pass
        return b"".join(chunks)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in the base class
        """Write no log."""
