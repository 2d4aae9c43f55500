"""A small TCP proxy before LakeFS that fails on demand: cuts, refuses, keeps still."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultProxy:
    """Forwards connections to a server. Every request of a connection is looked at first.

    ``refuse`` answers a number of requests with 503, ``cut`` ends a number of connections in the
    middle of an answer, ``keep_still`` accepts requests and never answers.
    """

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._refusals = 0
        self._cuts = 0
        self._cut_after = 0
        self._silences = 0
        self._match = b""
        self.requests: list[str] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def refuse(self, times: int, match: bytes = b"") -> None:
        """Answer the next requests whose first line holds ``match`` with 503."""
        self._refusals, self._match = times, match

    def cut(self, times: int, match: bytes = b"", after: int = 0) -> None:
        """End the next matching requests' connections after some bytes of the answer."""
        self._cuts, self._match, self._cut_after = times, match, after

    def keep_still(self, times: int) -> None:
        """Take the next requests and never answer them."""
        self._silences = times

    @property
    def spent(self) -> bool:
        """Whether every fault that was asked for has happened."""
        return self._refusals <= 0 and self._cuts <= 0 and self._silences <= 0

    def __enter__(self) -> FaultProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Shut down, not only closed: a thread that waits on a socket does not notice a close.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._sockets:
            end.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, name="fault-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            first = client.recv(1 << 16)
            if not first:
                return
            line = first.split(b"\r\n", 1)[0]
            with self._lock:
                self.requests.append(line.decode("latin-1"))
                matches = self._match in line
                refused = matches and self._refusals > 0
                cut = matches and not refused and self._cuts > 0
                self._refusals -= refused
                self._cuts -= cut
                silent = self._silences > 0
                self._silences -= silent
            if silent:
                return
            if refused:
                _answer_and_drain(client)
                return
            self._forward(client, first, cut=cut)

    def _forward(self, client: socket.socket, first: bytes, *, cut: bool) -> None:
        server = socket.create_connection(self._upstream, timeout=30)
        self._sockets.append(server)
        # One request per connection, so that each is seen and counted.
        head, sep, rest = first.partition(b"\r\n")
        server.sendall(head + sep + b"Connection: close\r\n" + rest)
        self._start(_copy, client, server)
        left = self._cut_after if cut else None
        while piece := server.recv(1 << 16 if left is None else min(left, 1 << 16) or 1):
            if left is not None and left < len(piece):
                break
            client.sendall(piece)
            left = None if left is None else left - len(piece)
        client.shutdown(socket.SHUT_RDWR)


def _answer_and_drain(client: socket.socket) -> None:
    client.sendall(UNAVAILABLE)
    client.shutdown(socket.SHUT_WR)
    while client.recv(1 << 16):
        pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
