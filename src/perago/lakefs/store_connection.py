"""Connections to an object store, with the little of HTTP that presigned addresses need."""

from __future__ import annotations

import os
import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAX_HEAD = 64 << 10
# Of content on its way to a file: small enough for the processor's cache.
_BUFFER = 1 << 20
# What is read of an answer that is not the one that was asked for.
_MAX_ERROR = 64 << 10
# Of what is sent around the chunks of an answer: their sizes, extensions, and trailers.
_MAX_AROUND = 64 << 10
# Stores close idle connections after 5 seconds and more.
_KEEP_ALIVE_SECONDS = 4.0
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([0-9]{3})(?: |\r|\Z)")
_DIGITS = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_WITHOUT_CONTENT = {204, 304}
# Where two values would mean two lengths.
_FRAMING = {"content-length", "transfer-encoding"}


class Endpoint(NamedTuple):
    """The server of an address."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class FileError(Exception):
    """The file that is to take an answer cannot be written."""


class AnswerError(Exception):
    """An answer that is not the one to the request; its text quotes nothing of the answer."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer: the status, and the fields by their names in lower case."""

    status: int
    is_1_1: bool
    fields: dict[str, str]

    @classmethod
    def parsed(cls, text: bytes) -> Head:
        """Parse a head; raises ``AnswerError`` for one that could be read in two ways."""
        line, *lines = text.decode("latin-1").split("\r\n")
        status = _STATUS_LINE.match(line)
        if status is None:
            raise AnswerError("the answer is not HTTP")
        fields: dict[str, str] = {}
        for field in lines:
            name, colon, value = field.partition(":")
            name, value = name.lower(), value.strip()
            if not colon or (fields.get(name, value) != value and name in _FRAMING):
                raise AnswerError("the head of the answer is not HTTP")
            fields[name] = value
        return cls(int(status[2]), status[1] == "1", fields)

    @property
    def length(self) -> int | None:
        """The length of the content; None if it is not stated."""
        if self.status in _WITHOUT_CONTENT:
            return 0
        value = self.fields.get("content-length", "")
        is_stated = "transfer-encoding" not in self.fields and _DIGITS.fullmatch(value)
        return int(value) if is_stated else None

    @property
    def is_chunked(self) -> bool:
        """Whether the content comes in chunks, the last of which says that it is one."""
        coding = self.fields.get("transfer-encoding", "").lower()
        return coding == "chunked" and self.status not in _WITHOUT_CONTENT

    @property
    def etag(self) -> str:
        return self.fields.get("etag", "").strip(' "')

    @property
    def keeps_connection(self) -> bool:
        return self.is_1_1 and self.fields.get("connection", "").lower() != "close"


class Connection:
    """A connection whose operations end with the request."""

    def __init__(self, opened: socket.socket, silence: float) -> None:
        """``silence``: how long the other side may take to send or receive anything."""
        self._socket = opened
        self._silence = silence
        self._ends = 0.0
        # What was received and not read yet.
        self._ahead = b""
        self.is_used = False
        self.is_at_end = False
        self.idle_since = 0.0

    def begin(self, ends: float) -> None:
        """Begin a request that has to end by then."""
        self._ends, self.is_used, self.is_at_end = ends, False, False

    def send(self, content: ReadableBuffer) -> None:
        left = memoryview(content)
        while left:
            self._wait_no_longer()
            self.is_used = True
            left = left[self._socket.send(left) :]

    def read_head(self) -> Head:
        """Read the head of the answer; those that only say that it is to come are left out."""
        while True:
            while (end := self._ahead.find(b"\r\n\r\n")) < 0:
                if len(self._ahead) > _MAX_HEAD:
                    raise AnswerError("the head of the answer is too long")
                self._receive_ahead()
            head, self._ahead = Head.parsed(self._ahead[:end]), self._ahead[end + 4 :]
            if head.status >= 200:
                return head

    def read_content(self, head: Head, length: int) -> memoryview:
        """Read all of the content, which must have so many bytes."""
        content = memoryview(bytearray(length))
        left = content
        for size in self._runs(head, length):
            self._fill(left[:size])
            left = left[size:]
        return content

    def save_content(self, head: Head, length: int, descriptor: int, start: int) -> None:
        """Read the content as ``read_content`` does, into a file from ``start`` on.

        By one small buffer: memory that is used for the first time takes longer than the copy.
        Raises ``FileError`` if the file cannot be written.
        """
        buffer = memoryview(bytearray(min(length, _BUFFER)))
        for size in self._runs(head, length):
            end = start + size
            while start < end:
                part = buffer[: end - start]
                self._fill(part)
                _write_at(descriptor, part, start)
                start += len(part)

    def _runs(self, head: Head, length: int) -> Iterator[int]:
        """Yield how much content comes next, which the caller reads: ``length`` bytes in all."""
        if not head.is_chunked:
            if head.length != length:
                raise AnswerError(f"the answer has {head.length} bytes instead of {length}")
            yield length
            self.is_at_end = not self._ahead
            return
        left = length
        for size in self._chunks(length):
            if size > left:
                raise AnswerError(f"the answer has more than {length} bytes")
            yield size
            left -= size
        if left:
            raise AnswerError(f"the answer ended {left} bytes before its end")

    def read_error(self, head: Head) -> memoryview:
        """Read what an answer says, or the start of it; nothing but a code is shown of it."""
        if head.is_chunked:
            return self._read_error_in_chunks()
        length = _MAX_ERROR if head.length is None else min(head.length, _MAX_ERROR)
        said = bytearray(self._ahead[:length])
        self._ahead = self._ahead[length:]
        while len(said) < length:
            self._wait_no_longer()
            if not (received := self._socket.recv(length - len(said))):
                return memoryview(said)
            said += received
        self.is_at_end = length == head.length and not self._ahead
        return memoryview(said)

    def _read_error_in_chunks(self) -> memoryview:
        said = bytearray()
        for size in self._chunks(_MAX_ERROR):
            part = bytearray(min(size, _MAX_ERROR - len(said)))
            self._fill(memoryview(part))
            said += part
            if len(part) < size:
                break
        return memoryview(said)

    def _chunks(self, length: int) -> Iterator[int]:
        """Yield the size of each chunk, whose content the caller reads before the next one.

        ``length``: how much content is expected. Small chunks have as much around them.
        """
        allowed = _MAX_AROUND + length
        while True:
            line = self._read_line(allowed)
            allowed -= len(line)
            if (found := _CHUNK.fullmatch(line)) is None:
                raise AnswerError("a chunk of the answer is not HTTP")
            if (size := int(found[1], 16)) == 0:
                break
            yield size
            if self._read_line(allowed):
                raise AnswerError("a chunk of the answer is not HTTP")
        while trailer := self._read_line(allowed):
            allowed -= len(trailer)
        self.is_at_end = not self._ahead

    def _read_line(self, longest: int) -> bytes:
        while (end := self._ahead.find(b"\r\n")) < 0 and len(self._ahead) <= longest:
            self._receive_ahead()
        if end < 0 or end > longest:
            raise AnswerError("what is around the chunks of the answer is too long")
        line, self._ahead = self._ahead[:end], self._ahead[end + 2 :]
        return line

    def _receive_ahead(self) -> None:
        self._wait_no_longer()
        received = self._socket.recv(_MAX_HEAD)
        if not received:
            raise AnswerError("the connection ended before the answer")
        self._ahead += received

    def _fill(self, content: memoryview) -> None:
        given = min(len(self._ahead), len(content))
        content[:given] = self._ahead[:given]
        self._ahead = self._ahead[given:]
        left = content[given:]
        while left:
            self._wait_no_longer()
            if not (count := self._socket.recv_into(left)):
                raise AnswerError(f"the answer ended {len(left)} bytes before its end")
            left = left[count:]

    def _wait_no_longer(self) -> None:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("not finished in time")
        self._socket.settimeout(min(left, self._silence))

    def without_waiting(self) -> socket.socket:
        """Return the socket, whose operations do not wait; the next ``begin`` has them wait."""
        self._socket.setblocking(False)
        return self._socket

    def is_alive(self) -> bool:
        """Whether another request can be sent: the other side has not closed it meanwhile."""
        if time.monotonic() - self.idle_since > _KEEP_ALIVE_SECONDS:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


class IdleConnections:
    """Connections that wait for the next request, by server."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[Endpoint, list[Connection]] = {}

    def take(self, endpoint: Endpoint) -> Connection | None:
        while True:
            with self._lock:
                waiting = self._waiting.get(endpoint)
                # The last one: the others may grow old.
                connection = waiting.pop() if waiting else None
            if connection is None or connection.is_alive():
                return connection
            connection.close()

    def put(self, endpoint: Endpoint, connection: Connection) -> None:
        connection.idle_since = time.monotonic()
        with self._lock:
            self._waiting.setdefault(endpoint, []).append(connection)

    def close(self) -> None:
        with self._lock:
            waiting = [item for found in self._waiting.values() for item in found]
            self._waiting.clear()
        for connection in waiting:
            connection.close()


def _write_at(descriptor: int, content: memoryview, start: int) -> None:
    try:
        while content:
            written = os.pwrite(descriptor, content, start)
            content, start = content[written:], start + written
    except OSError as error:
        raise FileError(str(error)) from error
