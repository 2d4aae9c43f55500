from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient

from perago import dev
from perago.conductor.taskdefs import ConductorTaskDefs
from perago.connections import ConductorConnection, LakeFSConnection
from perago.lakefs.control import LakeFSControl
from support.lake_sdk import connect


@pytest.fixture
def settings(endpoints: dev.Endpoints) -> dict[str, str]:
    """The environment of a command that may use both servers."""
    return endpoints.as_environment()


@pytest.fixture
def taskdefs(endpoints: dev.Endpoints) -> Iterator[ConductorTaskDefs]:
    connection = ConductorConnection(endpoints.conductor.server_url)
    with closing(ConductorTaskDefs(connection)) as taskdefs:
        yield taskdefs


@pytest.fixture
def lakefs(connection: LakeFSConnection) -> LakeFSClient:
    return connect(connection)


@pytest.fixture
def lake(connection: LakeFSConnection) -> LakeFSControl:
    return LakeFSControl(connection)


@pytest.fixture
def repository(lakefs: LakeFSClient) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex}"
    lakefs.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(
            name=name, storage_namespace=f"local://{name}", default_branch="trunk"
        )
    )
    yield name
    lakefs.repositories_api.delete_repository(name, force=True)
