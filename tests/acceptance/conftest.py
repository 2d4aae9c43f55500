"""A fresh world for each test, on clients that live as long as the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.world import Servers, World


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path / "workspaces")
