"""Checks of servers that a worker makes at its start and `perago doctor` at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from perago.connections import LakeFSConnection
from perago.errors import BackendError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects

# obstore waits for a whole request several times as long.
_GATEWAY_SECONDS = 2.5


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
