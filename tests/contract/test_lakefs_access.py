"""What a worker's start checks of LakeFS, against the real one: its API and its S3 gateway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import BackendDeniedError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.servers.endpoints import Endpoints

pytestmark = pytest.mark.servers


def check_api(connection: LakeFSConnection) -> None:
    with closing(LakeFSControl(connection)) as lake:
        lake.check_access()


def check_gateway(connection: LakeFSConnection) -> None:
    with closing(LakeFSObjects(replace(connection, retry_seconds=0.0))) as objects:
        objects.check_gateway()


@pytest.mark.parametrize("check", [check_api, check_gateway])
def test_credentials_are_accepted_or_denied(
    endpoints: Endpoints, check: Callable[[LakeFSConnection], None]
) -> None:
    connection = endpoints.lakefs.connection
    check(connection)
    with pytest.raises(BackendDeniedError):
        check(replace(connection, secret_access_key=SecretStr("wrong")))
