"""A proxy before LakeFS that loses and spoils replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perago.connections import LakeFSConnection
from support.fault_proxy import FaultProxy


@pytest.fixture
def proxy(connection: LakeFSConnection) -> Iterator[FaultProxy]:
    with FaultProxy(connection.server) as proxy:
        yield proxy
