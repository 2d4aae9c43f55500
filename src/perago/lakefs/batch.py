"""Many small requests to one server: one thread, some connections, and only what goes well.

A thread for each request waits for the interpreter more than for the server: of 2,000 small
objects, that took four times as much processor as the work itself. Here one thread sends and
receives on all connections.

Nothing is retried or raised here. A request whose answer is not exactly the expected one is left
out, and the caller sends it in the other way, which retries and tells what is wrong. The connection
of such a request is closed, and another one takes its place only if it had answered well before: so
a server in trouble ends a batch after a few requests.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from perago.http_client import seconds_left
from perago.lakefs.store_connection import AnswerError, Connection, Endpoint, Head

_RECEIVED_AT_ONCE = 64 << 10
# Of an answer whose length is not known before, and of a head.
_MAX_UNKNOWN = 64 << 10
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# A server that answers sooner than this needs no more connections than a batch begins with: to open
# one can take longer than some requests, above all with TLS.
_AT_FIRST = 8
_SOON_SECONDS = 0.001
_READABLE = select.POLLIN
_BOTH = select.POLLIN | select.POLLOUT

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class BatchRequest(Generic[Item]):
    """One request for an item, and what its answer must be."""

    item: Item
    endpoint: Endpoint
    # The head and the content.
    sent: bytes
    status: int
    # The length of the answer's content; None if it is not known before.
    length: int | None = None


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many requests are under way at once, and how long one of them may take."""

    at_once: int
    seconds: float
    # How long the server may send and receive nothing at all.
    silence: float


def exchange_all(
    requests: Iterator[BatchRequest[Item]],
    limits: BatchLimits,
    connect: Callable[[], Connection],
    release: Callable[[Connection], None],
) -> Iterator[tuple[Item, memoryview]]:
    """Send requests, and yield each item with the content of its answer, in any order.

    Items are left out whose requests did not go well. ``release`` gets the connections that can be
    used again.
    """
    batch = _Batch(requests, limits, connect, release)
    try:
        batch.begin()
        while ready := batch.wait():
            for line in ready:
                if line.advance():
                    item, content = line.request.item, line.content
                    # First the next request, so that the server works while the caller does.
                    batch.go_on(line)
                    yield item, content
                elif line.has_failed:
                    batch.replace(line)
                else:
                    batch.watch(line)
    finally:
        batch.close()


class _Line(Generic[Item]):
    """A connection, and the request that is under way on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answers = 0
        self.has_failed = False
        # What is waited for.
        self.events = 0
        self._socket = connection.without_waiting()
        self.descriptor = self._socket.fileno()

    def begin(self, request: BatchRequest[Item], ends: float) -> None:
        """Send a request, or what the other side takes of it now."""
        self.request = request
        self.content = self._missing = memoryview(b"")
        self._ends = ends
        self._unsent = memoryview(request.sent)
        self._received = b""
        self._head: Head | None = None
        self._do(self._send)

    @property
    def wanted_events(self) -> int:
        return _BOTH if self._unsent else _READABLE

    @property
    def is_reusable(self) -> bool:
        return self._head is not None and self._head.keeps_connection

    def advance(self) -> bool:
        """Send and receive what is possible now; return whether the answer is complete."""
        if time.monotonic() > self._ends:
            self.has_failed = True
        return not self.has_failed and self._do(self._send) and self._do(self._receive)

    def _do(self, step: Callable[[], None]) -> bool:
        """Return whether a step was done to its end."""
        try:
            step()
        except _NOT_NOW:
            return False
        except Exception:  # noqa: BLE001  whatever an answer makes the code raise
            self.has_failed = True
            return False
        return True

    def _send(self) -> None:
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _receive(self) -> None:
        while self._head is None:
            received = self._socket.recv(_RECEIVED_AT_ONCE)
            _assert_more(len(received))
            self._received += received
            self._read_head()
        while self._missing:
            count = self._socket.recv_into(self._missing)
            _assert_more(count)
            self._missing = self._missing[count:]
        self.answers += 1

    def _read_head(self) -> None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _MAX_UNKNOWN:
                raise AnswerError("the head of the answer is too long")
            return
        head = Head.parsed(self._received[:end])
        length, expected = head.length, self.request.length
        if head.status != self.request.status or length is None:
            raise AnswerError("not the expected answer")
        if length > _MAX_UNKNOWN if expected is None else length != expected:
            raise AnswerError("the answer has another length")
        given = memoryview(self._received)[end + 4 :]
        if len(given) > length:
            raise AnswerError("the answer is longer than it says")
        self._head, self.content = head, given
        if len(given) < length:
            self.content = memoryview(bytearray(length))
            self.content[: len(given)] = given
            self._missing = self.content[len(given) :]


def _assert_more(count: int) -> None:
    if not count:
        raise AnswerError("the connection ended before the answer")


class _Batch(Generic[Item]):
    """The requests that are left, and the connections."""

    def __init__(
        self,
        requests: Iterator[BatchRequest[Item]],
        limits: BatchLimits,
        connect: Callable[[], Connection],
        release: Callable[[Connection], None],
    ) -> None:
        self._requests = requests
        self._limits = limits
        self._connect = connect
        self._release = release
        self._poll = select.poll()
        self._lines: dict[int, _Line[Item]] = {}
        self._can_grow = True

    def begin(self) -> None:
        """Begin the first requests, each on a connection of its own."""
        while len(self._lines) < min(_AT_FIRST, self._limits.at_once) and self._open_next():
            pass

    def wait(self) -> list[_Line[Item]]:
        """Wait for lines that can go on; none if there are no more, or no more time."""
        while self._can_grow and len(self._lines) < self._limits.at_once and seconds_left() > 0:
            if ready := self._ready(_SOON_SECONDS):
                return ready
            self._can_grow = self._open_next()
        return self._ready(self._limits.silence)

    def _ready(self, seconds: float) -> list[_Line[Item]]:
        seconds = min(seconds, seconds_left())
        if not self._lines or seconds <= 0:
            return []
        return [self._lines[descriptor] for descriptor, _ in self._poll.poll(seconds * 1000)]

    def watch(self, line: _Line[Item]) -> None:
        """Wait for what the line needs now."""
        if line.events != line.wanted_events:
            line.events = line.wanted_events
            self._poll.register(line.descriptor, line.events)

    def go_on(self, line: _Line[Item]) -> None:
        """Use a line whose answer is complete for the next request, if there is one."""
        request = next(self._requests, None)
        if request is not None and line.is_reusable:
            self._send(line, request)
        elif request is not None:
            self._drop(line)
            self._open(request)
        elif line.is_reusable:
            self._forget(line)
            self._release(line.connection)
        else:
            self._drop(line)

    def replace(self, line: _Line[Item]) -> None:
        """Close a line that failed, and open another one if it had answered well before."""
        self._drop(line)
        self._can_grow = False
        if line.answers:
            self._open_next()

    def close(self) -> None:
        """Close the lines, in whatever state an error or a signal has left them."""
        for line in self._lines.values():
            line.connection.close()

    def _open_next(self) -> bool:
        """Begin the next request on one more connection; return whether there are both."""
        request = next(self._requests, None)
        return request is not None and self._open(request)

    def _open(self, request: BatchRequest[Item]) -> bool:
        try:
            line = _Line[Item](self._connect())
        except OSError:
            return False
        self._lines[line.descriptor] = line
        self._send(line, request)
        return True

    def _send(self, line: _Line[Item], request: BatchRequest[Item]) -> None:
        line.begin(request, time.monotonic() + self._limits.seconds)
        self.watch(line)

    def _forget(self, line: _Line[Item]) -> None:
        del self._lines[line.descriptor]
        self._poll.unregister(line.descriptor)

    def _drop(self, line: _Line[Item]) -> None:
        self._forget(line)
        line.connection.close()
