"""Connect servers that belong to a test, and not to a worker or a stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perago import dev
from perago.hosting import ports
from perago.hosting.leash import Leash
from perago.spark.s3a import LakeFSGateway
from perago.spark.server import ConnectServer, ConnectSettings


def gateway_of(endpoints: dev.Endpoints) -> LakeFSGateway:
    """The stack's LakeFS as Spark reaches it."""
    lakefs = endpoints.lakefs
    return LakeFSGateway(lakefs.endpoint, lakefs.access_key_id, lakefs.secret_access_key)


@contextmanager
def connect_server(folder: Path, settings: ConnectSettings) -> Iterator[ConnectServer]:
    """A server that runs within the block."""
    (folder / "logs").mkdir()
    leash = Leash(folder / "watchdog.log")
    port = ports.choose(["spark"], {})["spark"]
    server = ConnectServer(folder, port, leash, token="token", settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        leash.release()
