"""A repository per test, on the session's LakeFS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from integration.transfer.lake import Lake, a_new_repository
from integration.transfer.proxy import FaultProxy
from perago import dev
from perago.connections import LakeFSConnection


@pytest.fixture
def connection(endpoints: dev.Endpoints) -> LakeFSConnection:
    lakefs = endpoints.lakefs
    return LakeFSConnection(
        lakefs.endpoint, lakefs.access_key_id, SecretStr(lakefs.secret_access_key)
    )


@pytest.fixture
def lake(connection: LakeFSConnection, tmp_path: Path) -> Lake:
    return a_new_repository(connection, tmp_path)


@pytest.fixture
def proxy(connection: LakeFSConnection) -> Iterator[FaultProxy]:
    with FaultProxy(connection.server) as proxy:
        yield proxy
