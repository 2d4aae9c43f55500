"""Connect servers that belong to a test, and not to a worker or a stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perago import dev
from perago.connections import LakeFSConnection
from perago.servers import loopback
from perago.servers.spark import ConnectServer, ConnectSettings
from perago.servers.watchdog import Watchdog


def gateway_of(endpoints: dev.Endpoints) -> LakeFSConnection:
    """The stack's LakeFS as Spark reaches it."""
    lakefs = endpoints.lakefs
    return lakefs.connection


@contextmanager
def connect_server(folder: Path, settings: ConnectSettings) -> Iterator[ConnectServer]:
    """A server that runs within the block."""
    (folder / "logs").mkdir()
    watchdog = Watchdog(folder / "watchdog.log")
    port = loopback.choose(["spark"], {})["spark"]
    server = ConnectServer(folder, port, watchdog, token="token", settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        watchdog.release()
