"""Perago's fixtures in a run of pytest of an author."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import perago

TEST = """
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_imported_before_a_test_asks():
    assert not [name for name in sys.modules if name.startswith("perago.t")]


def test_a_task(perago_workspace):
    from perago import task

    class Model(BaseModel):
        n: int = 0

    @task(name="count", owner_email="a@example.com")
    def count(workspace: Path, params: Model) -> Model:
        return Model(n=len(list(workspace.iterdir())))

    perago_workspace.put({"a.txt": "a"})
    assert perago_workspace.run(count).result.n == 1
"""


def test_the_workspace_fixture_is_there_and_costs_nothing_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "perago.pytest_plugin"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        env={
            "PATH": "",
            "PYTHONPATH": str(Path(perago.__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
