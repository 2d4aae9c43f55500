"""Serve the dashboard on loopback, on a thread of its own, behind a token."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perago.dashboard.app import build_app
from perago.dashboard.sources import Sources
from perago.errors import ServerError, SetupError
from perago.servers.loopback import LOOPBACK

# Beside the metrics, so that the address is the same from day to day; a taken one is replaced.
PREFERRED_PORT = 9465
_BACKLOG = 64
# Connections at once, the streams of open pages included.
_MOST_CONNECTIONS = 64
# From the connection, or the answer before, to a whole request: to connect takes no token, and a
# client that is silent, or slow on purpose, must not take the place of a page.
_REQUEST_SECONDS = 5.0
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_TICK_SECONDS = 0.02


class _Connection(H11Protocol):
    """HTTP without a log of requests, and with a bound on the wait for each of them.

    The first request of a browser has the token in its address, and uvicorn decides by the
    handlers of a logger of the process, which others may change. It also waits for a first
    request, and for the rest of one that has begun, without an end.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._bound_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._bound_silence()

    def _bound_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self.loop.call_later(_REQUEST_SECONDS, self._end_if_silent)

    def _end_if_silent(self) -> None:
        cycle: Any = self.cycle  # None before the first request, whatever its annotation says
        if cycle is None or cycle.response_complete:
            self.transport.close()


class Dashboard:
    """Serves while its context is open. ``url`` has the token: it is for one person's eyes."""

    def __init__(self, sources: Sources, *, port: int | None = None) -> None:
        """``port`` None takes the preferred port if it is free, and any free one otherwise."""
        self._sources = sources
        self._wanted = port
        self._token = secrets.token_urlsafe(32)
        self._port = 0
        self._stopping = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._held = ExitStack()

    @property
    def address(self) -> str:
        """Where it is, without the token: this may be logged."""
        return f"http://{LOOPBACK}:{self._port}/"

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"{self.address}?token={self._token}"

    def __enter__(self) -> Self:
        self._held.callback(self._sources.close)
        try:
            listening = self._held.enter_context(_listen(self._wanted))
        except SetupError:
            self._held.close()
            raise
        self._port = listening.getsockname()[1]
        app = build_app(self._sources, self._token, port=self._port, stopping=self._stopping)
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http=_Connection,
            loop="asyncio",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="perago-dashboard", daemon=True
        )
        self._thread.start()
        self._await_start(self._server, self._thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _await_start(self, server: uvicorn.Server, thread: threading.Thread) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                self._stop()
                raise ServerError(
                    "the dashboard did not start",
                    hint="Leave it out (`perago start` without --ui, `perago dev up --no-ui`).",
                )
            time.sleep(_TICK_SECONDS)

    def _stop(self) -> None:
        self._stopping.set()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
        self._held.close()


def _listen(wanted: int | None) -> socket.socket:
    """Listen on the loopback interface, and on no other."""
    ports = [PREFERRED_PORT, 0] if wanted is None else [wanted]
    reason = ""
    for port in ports:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
        else:
            return listening
    raise SetupError(
        f"the dashboard cannot listen on {LOOPBACK}:{ports[-1]}: {reason}",
        hint="Give another port with --ui-port, or leave the dashboard out.",
    )
