"""The servers the suite runs against: the same embedded stack that users get, started once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from perago import dev

if TYPE_CHECKING:
    from acceptance.world import Servers

_SERVER_MARKS = ("servers", "spark")
# A developer's shortcut: the JSON of `perago dev up --detach --json`, to use a running stack.
_ENDPOINTS = "PERAGO_TEST_ENDPOINTS"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and fetch the servers before the first test, whose timeout must not count that."""
    marks = {
        mark for item in session.items for mark in _SERVER_MARKS if item.get_closest_marker(mark)
    }
    if marks and not session.config.option.collectonly and _ENDPOINTS not in os.environ:
        dev.obtain(spark="spark" in marks)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dev.Stack]:
    """LakeFS and Conductor, for the whole session."""
    directory = tmp_path_factory.mktemp("stack")
    with dev.Stack.up(directory, spark=False, ephemeral=True) as running:
        yield running


@pytest.fixture(scope="session")
def spark_stack(stack: dev.Stack) -> dev.Stack:
    """The same stack with its Spark server, which is started when a test first asks for it."""
    stack.start_spark()
    return stack


@pytest.fixture(scope="session")
def endpoints(request: pytest.FixtureRequest) -> dev.Endpoints:
    """Where LakeFS and Conductor are, for tests that leave them running."""
    if given := os.environ.get(_ENDPOINTS):
        return dev.Endpoints.model_validate_json(given)
    stack: dev.Stack = request.getfixturevalue("stack")
    return stack.endpoints


@pytest.fixture(scope="session")
def servers(endpoints: dev.Endpoints) -> Iterator[Servers]:
    """Clients of LakeFS and Conductor, opened once."""
    from acceptance.world import Servers  # not for tests without servers: it loads both SDKs

    clients = Servers(endpoints)
    yield clients
    clients.close()
