"""A fresh world for each test, on clients that live as long as the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.world import Servers, World
from perago import dev


@pytest.fixture(scope="session")
def servers(endpoints: dev.Endpoints) -> Iterator[Servers]:
    clients = Servers(endpoints)
    yield clients
    clients.close()


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path / "workspaces")
