"""The LakeFS SDK, with which tests arrange and look: another client than the one under test."""

from __future__ import annotations

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient

from perago.connections import LakeFSConnection


def connect(connection: LakeFSConnection) -> LakeFSClient:
    """Build the SDK's client, without its own retries, which would also repeat writes."""
    configuration = lakefs_sdk.Configuration(
        host=connection.api,
        username=connection.access_key_id,
        password=connection.secret_access_key.get_secret_value(),
        ssl_ca_cert=str(connection.authorities.file) if connection.authorities else None,
    )
    configuration.retries = False
    return LakeFSClient(configuration)
