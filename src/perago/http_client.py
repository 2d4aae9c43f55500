"""Send one HTTP request within bounds: no retry, no redirect, no proxy, no cookie.

The bounds hold for the whole request: its time, also when the server sends one byte at a time, and
the size of its answer. Proxy variables of the environment are ignored, as by every client of
Perago.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO
from urllib.parse import urlencode

import httpcore

from perago.signals import raising_after

MAX_ANSWER = 64 << 20
_PIECE = 16 << 10
# Servers close idle connections after 20 seconds and more. A request on one that is just being
# closed would be a change without an answer.
_KEEP_ALIVE_SECONDS = 5.0


class RequestError(Exception):
    """A request without a usable answer; ``sent`` if the server may have received it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Answer:
    """The status and the whole body of an answer."""

    status: int
    body: bytes


@dataclass(slots=True)
class _Exchange:
    """A request under way, as its connection sees it."""

    seconds: float
    ends: float
    sent: bool = False
    # What it waits for now.
    line: socket.socket | None = None

    def break_off(self) -> None:
        """End what it waits for."""
        if self.line is not None:
            with suppress(OSError):
                self.line.shutdown(socket.SHUT_RDWR)

    def left(self, timeout: float | None) -> float:
        """Return the time for the next operation; raises if there is none left."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise httpcore.TimeoutException(f"not finished within {self.seconds:g} s")
        return left if timeout is None else min(left, timeout)


# When the requests of this thread must have ended, whatever time each of them has.
_deadline: ContextVar[float] = ContextVar("perago_http_deadline", default=math.inf)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Let all requests that this thread makes in the block, with their retries, end in time."""
    token = _deadline.set(min(time.monotonic() + seconds, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Return the time until the deadline of this thread; infinite where there is none."""
    return _deadline.get() - time.monotonic()


# The pool opens and uses connections in the thread that sends the request.
_exchange: ContextVar[_Exchange] = ContextVar("perago_http_exchange")


class HttpClient:
    """A pool of connections to one server. Thread-safe."""

    def __init__(
        self, base: str, *, connect_timeout: float, pem: str | None = None, connections: int = 16
    ) -> None:
        """``pem``: the certificates to trust instead of the usual ones."""
        self._base = base
        self._connect_timeout = connect_timeout
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls_context(pem) if base.startswith("https:") else None,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            retries=0,
            network_backend=_Backend(),
        )
        # The header Date of the last answer, and when it came.
        self._dated: tuple[bytes, float] | None = None
        # A client that is dropped leaves no open connection behind.
        self._finalizer = weakref.finalize(self, self._pool.close)

    def close(self) -> None:
        """Close the connections."""
        self._finalizer()

    @property
    def clock_difference(self) -> float | None:
        """How many seconds the server's clock is ahead of this one, to a second or so.

        It is read from the last answer; None if there was none, or none with a date.
        """
        if self._dated is None:
            return None
        date, received = self._dated
        try:
            return parsedate_to_datetime(date.decode("ascii")).timestamp() - received
        except (ValueError, OverflowError):
            return None

    def request(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | BinaryIO | None = None,
    ) -> Answer:
        """Send a request and read its whole answer; raises ``RequestError``, and nothing else."""
        seconds = min(seconds, max(seconds_left(), 0.0))
        exchange = _Exchange(seconds, time.monotonic() + seconds)
        with raising_after(exchange.break_off):
            return self._send(exchange, method, path, query, headers, content)

    def _send(
        self,
        exchange: _Exchange,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        content: bytes | BinaryIO | None,
    ) -> Answer:
        token = _exchange.set(exchange)
        try:
            url = (
                f"{self._base}{path}?{urlencode(query, doseq=True)}"
                if query
                else f"{self._base}{path}"
            )
            with self._pool.stream(
                method,
                url.encode("ascii"),
                headers=list({"User-Agent": "perago", **(headers or {})}.items()),
                content=_pieces(content),
                extensions={
                    "timeout": {"connect": self._connect_timeout, "pool": exchange.seconds}
                },
            ) as response:
                date = next(
                    (value for name, value in response.headers if name.lower() == b"date"), None
                )
                self._dated = (date, time.time()) if date else self._dated
                return Answer(response.status, _read(response))
        except Exception as error:  # noqa: BLE001  an answer may break the library anywhere
            raise RequestError(_describe(error), sent=exchange.sent) from None
        finally:
            _exchange.reset(token)


class _Backend(httpcore.NetworkBackend):
    """Opens connections whose operations end with the request."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _exchange.get().left(timeout)
        return _Stream(self._backend.connect_tcp(host, port, left, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    """Bounds the operations of a connection, and notes when something is sent."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        exchange = self._current()
        return self._stream.read(max_bytes, exchange.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        exchange = self._current()
        view = memoryview(buffer)
        for start in range(0, len(view), _PIECE):
            left = exchange.left(timeout)
            exchange.sent = True
            self._stream.write(bytes(view[start : start + _PIECE]), left)

    def _current(self) -> _Exchange:
        """The exchange that uses this connection now, which a signal may break off."""
        exchange = _exchange.get()
        exchange.line = self._stream.get_extra_info("socket")
        return exchange

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _exchange.get().left(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def tls_context(pem: str | None, *, and_usual: bool = False) -> ssl.SSLContext:
    """Trust the certificates in ``pem`` instead of the usual ones, or ``and_usual`` ones too."""
    if pem is None:
        return httpcore.default_ssl_context()
    if not and_usual:
        return ssl.create_default_context(cadata=pem)
    context = httpcore.default_ssl_context()
    context.load_verify_locations(cadata=pem)
    return context


def _pieces(content: bytes | BinaryIO | None) -> bytes | Iterator[bytes] | None:
    if content is None or isinstance(content, bytes):
        return content
    return iter(lambda: content.read(_PIECE), b"")


def _read(response: httpcore.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_stream():
        size += len(part)
        if size > MAX_ANSWER:
            raise httpcore.RemoteProtocolError(f"the answer is longer than {MAX_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)


def _describe(error: Exception) -> str:
    """Describe an error; only those of the connection are sure to quote no header of ours."""
    known = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError)
    text = str(error) if isinstance(error, known) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
