"""``/metrics``, ``/running``, ``/healthz`` and ``/readyz`` over HTTP, on a thread of their own.

The standard library's server is used on purpose: four fixed answers to a scraper need no more.
What it lacks is added here: a bound on connections and on the whole time of each.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

import structlog
from prometheus_client import CONTENT_TYPE_LATEST

from perago.errors import ConfigurationError
from perago.observability.metrics import WorkerMetrics
from perago.observability.readiness import Readiness
from perago.observability.running import RUNNING, RunningView
from perago.settings import Address, Settings

_REQUEST_SECONDS = 5.0
_TICK_SECONDS = 0.1
_MAX_CONNECTIONS = 16
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_log = structlog.get_logger(__name__)

HealthReply = tuple[HTTPStatus, str, bytes]


class HealthServer:
    """Serves while its context is open; leaving it joins the thread.

    ``explicit`` says that the address is from a setting or an option: that it cannot be had is
    then an error. A default address that is taken, by a second worker for instance, is only logged.
    """

    def __init__(
        self,
        address: Address | None,
        metrics: WorkerMetrics,
        find_problems: Callable[[], Sequence[str]],
        *,
        find_running: Callable[[], Sequence[RunningView]] = tuple,
        explicit: bool = True,
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        self._address = address
        self._metrics = metrics
        self._find_problems = find_problems
        self._find_running = find_running
        self._explicit = explicit
        self._request_seconds = request_seconds
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        metrics: WorkerMetrics,
        is_running: Callable[[], bool],
        find_running: Callable[[], Sequence[RunningView]] = tuple,
    ) -> Self:
        explicit = "metrics_address" in settings.model_fields_set
        readiness = Readiness(metrics, settings.workspace_root, settings.min_free_bytes, is_running)
        return cls(
            settings.metrics_address,
            metrics,
            readiness.problems,
            find_running=find_running,
            explicit=explicit,
        )

    @property
    def address(self) -> Address | None:
        """Where it listens, with the real port; ``None`` when nothing is served."""
        return Address(*self._server.server_address[:2]) if self._server else None  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        self._server = self._bind()
        if self._server is not None:
            self._thread = threading.Thread(
                target=self._server.serve_forever,
                args=(_TICK_SECONDS,),
                name="perago-health",
                daemon=True,
            )
            self._thread.start()
            _log.info("health_serving", address=str(self.address))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.close_all()
            self._server = self._thread = None

    def _bind(self) -> _Server | None:
        if self._address is None:
            return None
        try:
            return _Server(self._address, self._answer, self._request_seconds)
        except OSError as error:
            reason = error.strerror or str(error)
            if not self._explicit:
                _log.warning("health_not_served", address=str(self._address), reason=reason)
                return None
            raise ConfigurationError(
                f"PERAGO_METRICS_ADDRESS: cannot listen on {self._address}: {reason}",
                hint="Choose another address or a free port (port 0 takes one), or set it to off.",
            ) from error

    def _answer(self, path: str) -> HealthReply:
        match path.partition("?")[0]:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, self._metrics.render()
            case "/running":
                return HTTPStatus.OK, _JSON, RUNNING.dump_json(list(self._find_running()))
            case "/healthz":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/readyz":
                problems = self._find_problems()
                if not problems:
                    return HTTPStatus.OK, _TEXT, b"ready\n"
                text = "".join(f"not ready: {problem}\n" for problem in problems)
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode()
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"try /metrics, /running, /healthz or /readyz\n"


class _Server(ThreadingHTTPServer):
    # Not joined by socketserver, which would wait without a bound: close_all does it.
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS

    def __init__(
        self, address: Address, answer: Callable[[str], HealthReply], request_seconds: float
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.answer = answer
        self._request_seconds = request_seconds
        self._open: dict[Any, float] = {}
        self._changed = threading.Condition()
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own asks the resolver for a name of the host
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._changed:
            if len(self._open) >= _MAX_CONNECTIONS:
                return False
            self._open[request] = time.monotonic() + self._request_seconds
        return True

    def service_actions(self) -> None:
        """Called on every tick: end what takes too long, however alive it looks."""
        now = time.monotonic()
        with self._changed:
            self._shut([request for request, deadline in self._open.items() if deadline < now])

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._open.pop(request, None)
            super().shutdown_request(request)
            self._changed.notify_all()

    def close_all(self) -> None:
        """Stop listening, end open connections and wait until they are closed."""
        self.server_close()
        with self._changed:
            self._shut(list(self._open))
            self._changed.wait_for(lambda: not self._open, timeout=_REQUEST_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that goes away in the middle is no news."""
        _log.debug("health_request_failed", error=type(sys.exc_info()[1]).__name__)

    @staticmethod
    def _shut(requests: list[Any]) -> None:
        for request in requests:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # gone already


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "perago"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        self._send()

    def do_HEAD(self) -> None:
        self._send()

    def _refuse(self) -> None:
        self._reply(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET and HEAD only\n", allow=True)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815

    def _send(self) -> None:
        try:
            answer = self.server.answer(self.path)
        except Exception as error:  # noqa: BLE001  a bug in a check must not look like health
            _log.exception("health_check_failed", reason=str(error))
            answer = HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"the check itself failed\n"
        self._reply(*answer)

    def _reply(
        self, status: HTTPStatus, content_type: str, body: bytes, *, allow: bool = False
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if allow:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged: a scraper makes thousands, and their paths are not ours."""
