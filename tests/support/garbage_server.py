"""A TCP server that answers every request with the same garbage, whatever it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType

_LONGEST_REQUEST = 1 << 20
# Stands for the server's own address in a good answer, which has no length then.
HERE = "http://here"
PAGE = b"<!doctype html><html><body><h1>Welcome</h1></body></html>"


def answer(status: str, body: bytes, kind: str = "application/json", headers: str = "") -> bytes:
    """A well-formed answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}Content-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def placed_answer(status: str, body: bytes) -> bytes:
    """An answer in whose body ``HERE`` is replaced by where the server is."""
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + body


def _once(data: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([data])


def _endless(start: bytes, part: bytes, pause: float = 0.0) -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield start
        while True:
            yield part
            time.sleep(pause)

    return parts


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_DEEP = b"[" * 100_000 + b"]" * 100_000

# What is said at once, under each of the statuses that stand for success.
BODIES = {
    "a page": PAGE,
    "a word": b'"word"',
    "a number": b"42",
    "null": b"null",
    "an empty object": b"{}",
    "a list of numbers": b"[1, 2]",
    "fields of wrong types": b'{"id": 7, "taskId": [], "status": {}, "results": "x", "name": 1}',
    "deep nesting": _DEEP,
    "no text": b"\xff\xfe\x00\x80",
    "cut JSON": b'{"id": "a", "resul',
}

# The statuses that would say something of a server's state, if it were the server's.
_STATUSES = (
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "409 Conflict",
    "412 Precondition Failed",
)


def gateway_answer(status: str) -> bytes:
    """What an API gateway says that reloads its routes."""
    said = {"message": "no Route matched with those values", "request_id": "7f3c"}
    return answer(status, json.dumps(said).encode())


def _problem(status: str) -> bytes:
    """The error of a web framework, as in RFC 9457."""
    number, title = status.split(" ", 1)
    said = {"type": "about:blank", "title": title, "status": int(number), "message": "not found"}
    return answer(status, json.dumps(said).encode(), "application/problem+json")


GARBAGE: dict[str, Callable[[], Iterator[bytes]]] = {
    **{f"a gateway's {status}": _once(gateway_answer(status)) for status in _STATUSES},
    **{f"a framework's {status}": _once(_problem(status)) for status in _STATUSES},
    "a short 404 of a gateway": _once(answer("404 Not Found", b'{"message": "Not Found"}')),
    **{
        f"{status.split()[0]} with {name}": _once(answer(status, body))
        for status in ("200 OK", "201 Created")
        for name, body in BODIES.items()
    },
    "202 with nothing": _once(answer("202 Accepted", b"")),
    "203 with a page": _once(answer("203 Non-Authoritative Information", PAGE, "text/html")),
    "a redirect": _once(answer("302 Found", b"", headers="Location: http://127.0.0.1:1/\r\n")),
    "a moved page": _once(answer("301 Moved", PAGE, headers="Location: /login\r\n")),
    "404 with a page": _once(answer("404 Not Found", PAGE, "text/html")),
    "404 with nothing": _once(answer("404 Not Found", b"")),
    "409 with a page": _once(answer("409 Conflict", PAGE, "text/html")),
    "412 with a page": _once(answer("412 Precondition Failed", PAGE, "text/html")),
    "500 with a page": _once(answer("500 Internal Server Error", PAGE, "text/html")),
    "503 with nothing": _once(answer("503 Service Unavailable", b"")),
    "504 with a page": _once(answer("504 Gateway Timeout", PAGE, "text/html")),
    "a status of no kind": _once(answer("999 Strange", b"")),
    "no answer": _once(b""),
    "a status line alone": _once(b"HTTP/1.1 200 OK\r\n"),
    "cut headers": _once(_OK + b"Content-Le"),
    "a cut body": _once(_OK + b"Content-Length: 1000\r\n\r\n{"),
    "a cut chunk": _once(_OK + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n{"),
    "a chunk of no size": _once(_OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
    "an impossible length": _once(_OK + b"Content-Length: -1\r\n\r\n{}"),
    "another protocol": _once(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "TLS": _once(b"\x15\x03\x01\x00\x02\x02\x46"),
    "zeros": _once(b"\x00" * 4096),
    "header bytes that are no text": _once(b"HTTP/1.1 200 \xff\xfe\r\n\xff: \x80\r\n\r\n"),
    "compressed": _once(
        answer("200 OK", b"\x1f\x8b\x08\x00", headers="Content-Encoding: gzip\r\n")
    ),
    "silence": _endless(b"", b"", 0.05),
    "dripping headers": _endless(_OK, b"x", 0.05),
    "dripping header lines": _endless(_OK, b"X-More: 1\r\n", 0.05),
    "a dripping body": _endless(_OK + b"Content-Length: 100000\r\n\r\n", b" ", 0.05),
    "dripping chunks": _endless(_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.05),
    "waiting for ever": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
    "endless headers": _endless(_OK, b"X-More: " + b"1" * 4096 + b"\r\n"),
    "an endless body": _endless(_OK + b"\r\n", b" " * (1 << 16)),
    "an endless body of a length": _endless(
        _OK + b"Content-Length: 1099511627776\r\n\r\n", b" " * (1 << 16)
    ),
}


# The kinds whose answer never ends, and those of them that only make a client wait.
ENDLESS = [kind for kind, parts in GARBAGE.items() if parts.__qualname__.startswith("_endless")]
SLOW = [kind for kind in ENDLESS if "endless" not in kind]


class GarbageServer:
    """Answers requests with one kind of garbage; ``good`` names the exceptions."""

    def __init__(
        self, garbage: Callable[[], Iterator[bytes]], good: dict[str, bytes] | None = None
    ) -> None:
        """``good``: the answers to requests whose first line begins like a key."""
        self._garbage = garbage
        self._good = good or {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._stopped = threading.Event()
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> GarbageServer:
        threading.Thread(target=self._accept, name="garbage", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(end,), name="garbage", daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with end, suppress(OSError):
            end.settimeout(10)
            line = self._take_request(end)
            for start, data in self._good.items():
                if line.startswith(start):
                    end.sendall(data.replace(HERE.encode(), self.url.encode()))
                    break
            else:
                for part in self._garbage():
                    if self._stopped.is_set():
                        return
                    end.sendall(part)
            end.shutdown(socket.SHUT_WR)
            # Read what is left, so that the end of the connection does not throw the answer away.
            while end.recv(1 << 16):
                pass

    def _take_request(self, end: socket.socket) -> str:
        data = b""
        while b"\r\n\r\n" not in data and len(data) < _LONGEST_REQUEST:
            part = end.recv(1 << 16)
            if not part:
                break
            data += part
        head, _, start = data.partition(b"\r\n\r\n")
        # Not bytes: each part would copy all that came before it, of parts of many megabytes.
        body = bytearray(start)
        text = head.decode("latin-1")
        lines = [line.lower().split(":", 1) for line in text.splitlines()[1:] if ":" in line]
        length = next((int(value) for name, value in lines if name == "content-length"), 0)
        while len(body) < length:
            part = end.recv(1 << 16)
            if not part:
                break
            body += part
        self.requests.append(text.partition("\r\n")[0])
        self.heads.append(text)
        self.bodies.append(bytes(body))
        return text
