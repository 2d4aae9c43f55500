"""Connect servers that belong to a test, and not to a worker or a stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perago.servers import loopback
from perago.servers.spark import ConnectServer, ConnectSettings
from perago.servers.watchdog import Watchdog

# As in docs/spark-tasks.md. A workspace's branch has one writer, so that the log store for a
# single driver, which is the default for s3a://, is enough.
DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.1.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
Serve = Callable[[ConnectSettings], ConnectServer]


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
