"""A gate before a real server: a TCP proxy that holds requests of a kind until they are let go."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(?:GET|PUT|POST|DELETE|HEAD) \S+ HTTP/1\.1\r\n")


class Gate:
    """Forwards bytes both ways; a request whose first line matches waits at the gate."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self._pattern: re.Pattern[bytes] | None = None
        self.reached = threading.Event()
        self._open = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._spawn(self._accept)

    def hold(self, pattern: str) -> None:
        """From now on, hold requests whose first line contains ``pattern``."""
        self.reached.clear()
        self._open.clear()
        self._pattern = re.compile(pattern.encode())

    def release(self) -> None:
        """Let go what waits, and hold nothing any more."""
        self._pattern = None
        self._open.set()

    def close(self) -> None:
        self._closing = True
        self.release()
        for end in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._upstream, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += [client, server]
            self._spawn(self._pump, client, server, True)
            self._spawn(self._pump, server, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, requests: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if requests:
                    self._wait_at_gate(piece)
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait_at_gate(self, piece: bytes) -> None:
        pattern = self._pattern
        line = _REQUEST.match(piece)
        if pattern is not None and line is not None and pattern.search(line[0]):
            self.reached.set()
            self._open.wait(60)


@contextlib.contextmanager
def gate_before(upstream: str) -> Iterator[Gate]:
    gate = Gate(upstream)
    try:
        yield gate
    finally:
        gate.close()
