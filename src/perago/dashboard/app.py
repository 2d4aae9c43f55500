"""The pages and their addresses; each page is a function from a request to a template's values."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from perago.dashboard import rendering
from perago.dashboard.guard import Guard
from perago.dashboard.pages import NoPageError, Pages
from perago.dashboard.rendering import Page
from perago.dashboard.sources import Sources
from perago.errors import NotFoundError, PeragoError

_STATIC = Path(__file__).parent / "static"
# How often an open page is looked at again, and for how long one stream lasts; browsers reconnect.
_LIVE_SECONDS = 2.0
_STREAM_SECONDS = 600.0
_MOST_STREAMS = 24
_TICK_SECONDS = 0.25
# The status of a page for which a server did not give what is needed.
_AWAY = 502
_log = structlog.get_logger(__name__)

View = Callable[[Request], Page]


@dataclass(slots=True)
class _Streams:
    """Counts the open streams; used by the server's one thread."""

    open: int = 0


class _Stream(StreamingResponse):
    """Counts from its check on: nothing else runs between the two."""

    def __init__(self, events: AsyncIterator[str], streams: _Streams) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


def build_app(
    sources: Sources, token: str, *, port: int, stopping: threading.Event | None = None
) -> ASGIApp:
    """Build the application; ``stopping`` ends the streams of open pages."""
    pages = Pages(sources)
    views: dict[str, View] = {
        "/": pages.overview,
        "/workflows/{workflow_id}": pages.workflow,
        "/attempts/{task_id}": pages.attempt,
        "/repositories": pages.repositories,
        "/repositories/{repository}": pages.branch,
        "/repositories/{repository}/branches/{branch}": pages.branch,
        "/repositories/{repository}/commits/{commit}": pages.commit,
        "/publish-times": pages.publish_times,
        "/errors": pages.errors,
    }
    streams = _Streams()
    ends = stopping or threading.Event()
    routes = [
        Mount("/static", StaticFiles(directory=_STATIC)),
        *(Route(f"/live{path}", _stream(view, streams, ends)) for path, view in views.items()),
        *(Route(path, _answer(view)) for path, view in views.items()),
        Route("/{rest:path}", _answer(_nothing)),
    ]
    return Guard(Starlette(routes=routes), token, port=port)


def _nothing(_: Request) -> Page:
    raise NoPageError("There is no such page.")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A page as it is sent."""

    status: int
    text: str
    is_live: bool = False


def _look(view: View, request: Request, render: Callable[[Page], str]) -> _Seen:
    """Build and render a page; what goes wrong is a page, too, and names no secret."""
    try:
        page = view(request)
        return _Seen(200, render(page), page.is_live)
    except NoPageError as error:
        return _Seen(404, render(rendering.problem("Not found", str(error))))
    except PeragoError as error:
        status = 404 if isinstance(error, NotFoundError) else _AWAY
        return _Seen(status, render(rendering.failure(error)))
    except Exception as error:  # noqa: BLE001  a bug in one page must not end the others
        _log.exception("dashboard_failed", error=type(error).__name__)
        text = "This page could not be made, which is a bug in Perago. The log has the details."
        return _Seen(500, render(rendering.problem("A bug in Perago", text)))


def _answer(view: View) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        path = request.url.path
        seen = _look(view, request, lambda page: rendering.whole(page, path))
        return HTMLResponse(seen.text, seen.status)

    return answer


def _stream(view: View, streams: _Streams, ends: threading.Event) -> Any:
    """Answer with server-sent events: the page's changing part, whenever it has changed."""

    async def events(request: Request) -> AsyncIterator[str]:
        before, deadline = "", time.monotonic() + _STREAM_SECONDS
        yield "retry: 3000\n\n"
        while not ends.is_set() and time.monotonic() < deadline:
            seen = await run_in_threadpool(_look, view, request, rendering.part)
            if seen.text != before:
                before = seen.text
                yield f"data: {json.dumps(before)}\n\n"
            else:
                # Tells the browser that the server is there, and the server that it is not.
                yield ": still here\n\n"
            # A server that is away comes back, and with it what was followed.
            if not seen.is_live and seen.status != _AWAY:
                yield "event: over\ndata: \n\n"
                return
            await _pause(ends)

    async def answer(request: Request) -> Response:
        if streams.open >= _MOST_STREAMS:
            return PlainTextResponse("too many open pages\n", 503)
        return _Stream(events(request), streams)

    return answer


async def _pause(ends: threading.Event) -> None:
    for _ in range(round(_LIVE_SECONDS / _TICK_SECONDS)):
        if ends.is_set():
            return
        await asyncio.sleep(_TICK_SECONDS)
