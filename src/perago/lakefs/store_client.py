"""Requests to an object store at presigned addresses: no retry, no redirect, no proxy.

These requests are not made by ``HttpClient``. A piece of an object is received into one buffer and
sent from one, where that client takes answers apart into small pieces: of half a gigabyte, this
alone took as long as the whole download. And of thousands of small objects, to parse the heads of
answers with a library took most of the time. The bounds are the same: each request has a time for
all of it, also when the store sends one byte at a time, and a size.

An address is a secret: no error holds one.
"""

from __future__ import annotations

import socket
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from perago.http_client import RequestError, seconds_left, tls_context
from perago.lakefs.batch import BatchLimits, BatchRequest, Item, exchange_all
from perago.lakefs.store_connection import (
    AnswerError,
    Connection,
    Endpoint,
    FileError,
    Head,
    IdleConnections,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PORTS = {"http": 80, "https": 443}
_NONE: Mapping[str, str] = {}
_NOT_QUOTED = "/?#[]@!$&'()*+,;=%~:"


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """The status of an answer, and its content: what was asked for, or the start of an error."""

    status: int
    content: memoryview
    # Without quotes; empty where there is none.
    etag: str = ""


@lru_cache(maxsize=64)
def _endpoint(scheme: str, netloc: str) -> Endpoint:
    parts = urlsplit(f"{scheme}://{netloc}")
    if scheme not in _PORTS or not parts.hostname or "@" in netloc or not netloc.isascii():
        raise ValueError("the address of the object is no http(s) URL")
    return Endpoint(scheme, parts.hostname, parts.port or _PORTS[scheme])


class SplitAddress(NamedTuple):
    """An address, taken apart. All but the server is secret."""

    endpoint: Endpoint
    # The server as it was signed: with its port exactly if the address has one.
    netloc: str
    target: str

    @classmethod
    def of(cls, url: str) -> SplitAddress:
        """Take an address apart; raises ``ValueError`` without quoting it."""
        scheme, _, rest = url.partition("://")
        netloc, _, target = rest.partition("/")
        if not url.isprintable() or " " in url:
            raise ValueError("the address of the object is no URL")
        try:
            endpoint = _endpoint(scheme, netloc)
        except ValueError:
            raise ValueError("the address of the object is no http(s) URL") from None
        # A key that LakeFS imported may be in it as it is.
        return cls(endpoint, netloc, target if target.isascii() else quote(target, _NOT_QUOTED))


def host_of(url: str) -> str:
    """Return the server of an address, which is no secret."""
    try:
        return str(SplitAddress.of(url).endpoint)
    except ValueError:
        return "(of no usable address)"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an object, and how long the object is, if that is known."""

    start: int
    length: int
    total: int | None

    @property
    def text(self) -> str:
        return f"{self.start}-{self.start + self.length - 1}"

    def check(self, head: Head) -> None:
        """Compare what an answer says that it is with what was asked for."""
        stated, part = head.fields.get("content-range", ""), f"bytes {self.text}/"
        if not stated.startswith(part):
            raise AnswerError("the answer is another part of the object")
        if self.total is not None and stated.removeprefix(part) not in {"*", str(self.total)}:
            raise AnswerError(f"the object has another length than {self.total} bytes")


class StoreClient:
    """Gets and puts pieces of objects, on connections that are kept. Thread-safe."""

    def __init__(
        self,
        *,
        connect_timeout: float,
        read_timeout: float,
        pem: str | None = None,
        and_usual: bool = True,
    ) -> None:
        """``pem``: certificates to trust instead of the usual ones, or besides them."""
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._pem = pem
        self._and_usual = and_usual
        self._tls: ssl.SSLContext | None = None
        self._idle = IdleConnections()
        # A client that is dropped leaves no open connection behind.
        self._finalizer = weakref.finalize(self, self._idle.close)

    def close(self) -> None:
        """Close the connections."""
        self._finalizer()

    def get(
        self,
        url: str,
        length: int,
        *,
        start: int | None = None,
        total: int | None = None,
        seconds: float,
    ) -> StoreAnswer:
        """Read a whole object, or from ``start`` on, of which the length is known.

        Raises ``RequestError``, and nothing else; also for content of another length, and for a
        part of an object that does not have ``total`` bytes, as far as the store says it.
        """

        def receive(head: Head, connection: Connection) -> memoryview:
            return connection.read_content(head, length)

        part = None if start is None else _Part(start, length, total)
        return self._get(url, part, {}, seconds, receive)

    def save(
        self,
        url: str,
        length: int,
        descriptor: int,
        *,
        start: int,
        total: int,
        seconds: float,
        headers: Mapping[str, str] = _NONE,
    ) -> StoreAnswer:
        """Write a part of an object to the same place of a file, else as ``get``.

        Raises ``FileError`` if the file cannot be written. A part that fails may have written
        some of its bytes.
        """

        def receive(head: Head, connection: Connection) -> memoryview:
            connection.save_content(head, length, descriptor, start)
            return memoryview(b"")

        return self._get(url, _Part(start, length, total), headers, seconds, receive)

    def _get(
        self,
        url: str,
        part: _Part | None,
        headers: Mapping[str, str],
        seconds: float,
        receive: Callable[[Head, Connection], memoryview],
    ) -> StoreAnswer:
        def read(head: Head, connection: Connection) -> memoryview:
            if head.status != (200 if part is None else 206):
                return connection.read_error(head)
            if part is not None:
                part.check(head)
            return receive(head, connection)

        asked = {} if part is None else {"Range": f"bytes={part.text}"}
        return self._request("GET", url, {**headers, **asked}, b"", seconds, read)

    def put(
        self, url: str, content: ReadableBuffer, headers: Mapping[str, str], *, seconds: float
    ) -> StoreAnswer:
        """Write an object or a part of one; raises ``RequestError``, and nothing else."""
        sent = memoryview(content)
        lengths = {"Content-Length": str(len(sent)), **headers}

        def read(head: Head, connection: Connection) -> memoryview:
            return connection.read_error(head)

        return self._request("PUT", url, lengths, sent, seconds, read)

    def exchange_all(
        self, requests: Iterator[BatchRequest[Item]], *, at_once: int, seconds: float
    ) -> Iterator[tuple[Item, memoryview]]:
        """Send small requests and yield their items, each with the content of its answer.

        Items are left out whose requests did not go well, or go to another server than the first.
        """
        if (first := next(requests, None)) is None:
            return iter(())
        endpoint = first.endpoint

        def connect() -> Connection:
            ends = time.monotonic() + self._connect_timeout
            return self._idle.take(endpoint) or self._connect(endpoint, ends)

        return exchange_all(
            (item for item in chain([first], requests) if item.endpoint == endpoint),
            BatchLimits(at_once, seconds, self._read_timeout),
            connect,
            partial(self._idle.put, endpoint),
        )

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: ReadableBuffer,
        seconds: float,
        read: Callable[[Head, Connection], memoryview],
    ) -> StoreAnswer:
        try:
            address = SplitAddress.of(url)
        except ValueError as error:
            raise RequestError(str(error), sent=False) from None
        ends = time.monotonic() + min(seconds, max(seconds_left(), 0.0))
        connection: Connection | None = None
        try:
            connection = self._idle.take(address.endpoint) or self._connect(address.endpoint, ends)
            connection.begin(ends)
            connection.send(request_head(method, address, headers))
            # A store that refuses an address need not take the content before it says so.
            with suppress(ConnectionError):
                connection.send(content)
            head = connection.read_head()
            answer = StoreAnswer(head.status, read(head, connection), head.etag)
            if head.keeps_connection and connection.is_at_end:
                self._idle.put(address.endpoint, connection)
                connection = None
        except FileError:
            raise
        except Exception as error:  # noqa: BLE001  whatever an answer makes the code raise
            sent = connection is not None and connection.is_used
            raise RequestError(_describe(error), sent=sent) from None
        else:
            return answer
        finally:
            if connection is not None:
                connection.close()

    def _connect(self, endpoint: Endpoint, ends: float) -> Connection:
        timeout = min(self._connect_timeout, max(ends - time.monotonic(), 0.001))
        opened = socket.create_connection((endpoint.host, endpoint.port), timeout)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.scheme == "https":
                self._tls = self._tls or tls_context(self._pem, and_usual=self._and_usual)
                opened = self._tls.wrap_socket(opened, server_hostname=endpoint.host)
        except BaseException:
            opened.close()
            raise
        return Connection(opened, self._read_timeout)


def request_head(method: str, address: SplitAddress, headers: Mapping[str, str]) -> bytes:
    """Write the head of a request."""
    lines = [
        f"{method} /{address.target} HTTP/1.1",
        f"Host: {address.netloc}",
        "User-Agent: perago",
    ]
    # Or a store may decompress what it has.
    lines += ["Accept-Encoding: identity", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _describe(error: Exception) -> str:
    """Describe an error; only ours and those of the system are sure to quote no address."""
    if isinstance(error, AnswerError):
        return str(error)
    text = str(error) if isinstance(error, OSError) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
