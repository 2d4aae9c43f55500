"""Real servers, a fresh repository for each test, and the command line as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.world import Servers, World
from perago import dev

Perago = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> World:
    return World(servers, tmp_path / "workspaces")


@pytest.fixture
def environment(endpoints: dev.Endpoints, tmp_path: Path) -> dict[str, str]:
    """What a user has set who runs ``perago`` against the servers."""
    lakefs = endpoints.lakefs
    return {
        **os.environ,
        "PYTHONPATH": str(Path(dev.__file__).parents[2]),
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs.endpoint,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs.secret_access_key,
        "CONDUCTOR_SERVER_URL": endpoints.conductor.server_url,
        "PERAGO_WORKSPACE_ROOT": str(tmp_path / "workspaces"),
    }


@pytest.fixture
def perago(environment: dict[str, str], tmp_path: Path) -> Perago:
    """Run ``perago`` to its end."""

    def run(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perago", *args],
            cwd=tmp_path,
            env={**environment, **extra},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
