"""The servers of the rows about S3: what they are told, without starting them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perago.servers.lakefs import LakeFS
from perago.servers.state import Secrets
from perago.servers.toolchain.go_program import GoProgram
from perago.servers.watchdog import Watchdog
from support import lake_servers
from support.lake_servers import BUCKET, LakeFSOnS3, S3Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(GoProgram, "obtain", lambda _: Path("/bin/versitygw"))
    return S3Store(tmp_path, 7001, unused(), key_id="store", secret="store-secret")


def unused() -> Watchdog:
    """No process is started by what is tried here."""
    return object.__new__(Watchdog)


def test_the_store_serves_a_folder_and_has_its_keys_from_its_environment(
    store: S3Store, tmp_path: Path
) -> None:
    command = store.prepare()
    buckets = tmp_path / "versitygw" / "buckets"
    assert command.arguments == [
        "/bin/versitygw",
        *["--port", "127.0.0.1:7001", "--keep-alive", "posix", str(buckets)],
    ]
    assert command.env["ROOT_SECRET_KEY"] == "store-secret"
    assert (buckets / BUCKET).is_dir()


def test_lakefs_keeps_its_blocks_in_the_store(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_LAKEFS_BIN", "/bin/true")
    secrets = Secrets.random().lakefs
    server = LakeFSOnS3(tmp_path, 7002, unused(), secrets=secrets, max_batch_delay="0s")
    server.store = store
    command = server.prepare()
    settings = json.loads((tmp_path / "lakefs" / "lakefs.json").read_text())
    blocks = settings["blockstore"]
    assert blocks["type"] == "s3"
    assert blocks["s3"]["endpoint"] == "http://127.0.0.1:7001"
    assert blocks["s3"]["credentials"]["secret_access_key"] == "store-secret"
    assert settings["graveler"] == {"max_batch_delay": "0s"}
    assert not any("secret" in argument for argument in command.arguments)


def test_without_a_batch_delay_lakefs_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_LAKEFS_BIN", "/bin/true")
    started: list[LakeFS] = []
    monkeypatch.setattr(lake_servers, "Watchdog", lambda _: Released())
    monkeypatch.setattr(LakeFS, "start", lambda server: started.append(server))
    folder = tmp_path / "own"
    with lake_servers.lakefs_server(folder, max_batch_delay=None) as server:
        assert started == [server]
        server.prepare()
        settings = json.loads((folder / "lakefs" / "lakefs.json").read_text())
        assert "graveler" not in settings
    assert not folder.exists()


class Released:
    """Stands for the watchdog of a server that was never started."""

    def release(self) -> None:
        """Nothing is watched."""
