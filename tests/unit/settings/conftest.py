"""Where the tests of settings run: a folder, a home and an environment without any setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.settings import Settings
from perago.settings.model import variable_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, an empty home and an environment without our variables."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    monkeypatch.delenv("LAKECTL_CONFIG_FILE", raising=False)
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)
    return here
