"""Checks of servers that a worker makes at its start and `perago doctor` at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from perago.connections import ConductorConnection, LakeFSConnection, plain_http_warning
from perago.errors import BackendError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.settings import Settings
from perago.wiring.connections import conductor_connection, lakefs_connection

# Of what an external Spark lacks.
SPARK_HINT = "Have the server's operator set what docs/spark.md lists."
_REQUEST_SECONDS = 10.0
# obstore waits for a whole request several times as long.
_GATEWAY_SECONDS = 2.5


def lakefs_to_check(settings: Settings) -> LakeFSConnection:
    """Return the connection of the settings, for requests that a person waits for."""
    return replace(lakefs_connection(settings), read_timeout=_REQUEST_SECONDS)


def conductor_to_check(settings: Settings) -> ConductorConnection:
    """Return the connection of the settings, for requests that a person waits for."""
    return replace(conductor_connection(settings), read_timeout=_REQUEST_SECONDS)


def plain_http_warnings(
    connection: LakeFSConnection | ConductorConnection,
) -> Iterator[tuple[str, str, str]]:
    """Yield the setting, its address and a warning where credentials can be read on their way."""
    for setting, address in _addresses(connection):
        if warning := plain_http_warning(address):
            yield setting, address, warning


def _addresses(connection: LakeFSConnection | ConductorConnection) -> Iterator[tuple[str, str]]:
    if isinstance(connection, ConductorConnection):
        yield "CONDUCTOR_SERVER_URL", connection.api
        return
    yield "LAKECTL_SERVER_ENDPOINT_URL", connection.server
    if connection.s3_endpoint is not None:
        yield "PERAGO_LAKEFS_S3_ENDPOINT", connection.gateway


def is_about_lakefs(spark_problem: str) -> bool:
    """Return whether Spark cannot reach LakeFS; where LakeFS is down that is no fault of Spark."""
    return "s3a" in spark_problem


def lakefs_errors(connection: LakeFSConnection) -> Iterator[tuple[str, BackendError]]:
    """Check the credentials, then the S3 gateway; yield what fails, with the setting's name."""
    setting = f"LAKECTL_SERVER_ENDPOINT_URL={connection.server}"
    with closing(LakeFSControl(connection)) as lake:
        try:
            lake.check_access()
        except BackendError as error:
            yield setting, error
            return
    if connection.s3_endpoint is not None:
        setting = f"PERAGO_LAKEFS_S3_ENDPOINT={connection.gateway}"
    # One try: a server that is checked is up.
    quick = replace(connection, read_timeout=_GATEWAY_SECONDS, retry_seconds=0.0)
    with closing(LakeFSObjects(quick)) as objects:
        try:
            objects.check_gateway()
        except BackendError as error:
            yield setting, error
