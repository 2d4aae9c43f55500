"""A gate between a worker and Conductor: it can stop one report from ever arriving.

A worker that dies between publishing and reporting is a matter of milliseconds. The gate makes it
one of certainty: it sees the report come, and has the worker killed in its place.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

Report = dict[str, Any]
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_TIMEOUT = 60.0


class Gate:
    """Forwards every request to Conductor, except a report that is waited for."""

    def __init__(self, conductor: str) -> None:
        parts = urlsplit(conductor)
        self.upstream = (parts.hostname or "", parts.port or 80)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.gate = self
        self.url = f"http://127.0.0.1:{self._server.server_port}{parts.path}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._is_awaited: Callable[[Report], bool] = lambda _: False
        self._then: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        # The report that was stopped, as the worker wrote it.
        self.stopped: Report | None = None
        self._met = threading.Event()

    def stop_report(self, is_awaited: Callable[[Report], bool], then: Callable[[], None]) -> None:
        """Do not forward the first report that ``is_awaited``; call ``then`` in its place."""
        self._then = then
        self._is_awaited = is_awaited

    def takes(self, report: Report) -> bool:
        """Whether this report ends here; what is to be done then has been done."""
        with self._lock:
            if self.stopped is not None or not self._is_awaited(report):
                return False
            self.stopped = report
            self._then()
            self._met.set()
            return True

    def has_stopped(self) -> bool:
        """Whether the report has come, and all that was to happen then has happened."""
        return self._met.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    gate: Gate


class _Handler(BaseHTTPRequestHandler):
    """One connection of the worker's, and one to Conductor for it."""

    protocol_version = "HTTP/1.1"
    # An answer in one piece, at once: the gate must not show in the seconds of a phase.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        host, port = self.server.gate.upstream
        self._conductor = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)

    def finish(self) -> None:
        self._conductor.close()
        super().finish()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_report = self.command == "POST" and self.path == "/api/tasks"
        if is_report and self.server.gate.takes(json.loads(body)):
            self.close_connection = True  # nobody is there any more to answer
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        try:
            self._conductor.request(self.command, self.path, body or None, headers)
            answer = self._conductor.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._conductor.close()
            self.send_error(502)
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815  the names http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as in the base class
        """The demonstration has a log of its own."""
