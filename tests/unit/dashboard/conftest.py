"""The dashboard's pages, asked in this process or served on loopback, by a client with a token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from perago.dashboard.app import build_app
from perago.dashboard.server import Dashboard
from perago.dashboard.sources import Sources

_PORT = 9465


class PageClient:
    """Asks the application itself, without a server."""

    def __init__(self, sources: Sources) -> None:
        self._app = build_app(sources, "a-token", port=_PORT)

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._get(path))

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self._app),
            base_url=f"http://127.0.0.1:{_PORT}",
            cookies={f"perago_{_PORT}": "a-token"},
        ) as client:
            return await client.get(path)


@pytest.fixture
def open_page() -> Callable[[Sources], PageClient]:
    return PageClient


@pytest.fixture
def serve_page() -> Iterator[Callable[[Sources], httpx.Client]]:
    """Serve sources; the client follows the exchange of the token for the cookie."""
    with ExitStack() as held:

        def opened(sources: Sources) -> httpx.Client:
            dashboard = held.enter_context(Dashboard(sources, port=0))
            client = httpx.Client(follow_redirects=True, timeout=20, trust_env=False)
            held.enter_context(client)
            client.base_url = httpx.URL(dashboard.url).copy_with(path="/", query=None)
            assert client.get(dashboard.url).status_code == 200
            return client

        yield opened
