"""A connection in a file: read by this user only, and complete."""

from __future__ import annotations

import pickle
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import Authorities, LakeFSConnection
from perago.lakefs import store_serializer as serializer
from perago.lakefs.store_serializer import LakeFSStoreSerializer, open_store

CONNECTION = LakeFSConnection(
    "http://127.0.0.1:1", "key", SecretStr("hush"), retry_seconds=3.0, transfer="gateway"
)


def test_the_file_is_only_this_user_s_and_is_never_written_through(tmp_path: Path) -> None:
    file = tmp_path / "store"
    LakeFSStoreSerializer(CONNECTION).pack(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        LakeFSStoreSerializer(CONNECTION).pack(file)


def test_what_is_opened_is_the_whole_connection_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[LakeFSConnection] = []
    monkeypatch.setattr(serializer, "_store", lambda connection: seen.append(connection))
    LakeFSStoreSerializer(CONNECTION).pack(tmp_path / "store")
    open_store(tmp_path / "store")
    assert seen == [CONNECTION]
    monkeypatch.undo()
    LakeFSStoreSerializer(CONNECTION).pack(tmp_path / "other")
    assert open_store(tmp_path / "store") is open_store(tmp_path / "other")


def test_a_private_authority_arrives_as_text_where_its_file_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "authority.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    private = replace(
        CONNECTION,
        endpoint="https://127.0.0.1:1",
        s3_endpoint="https://127.0.0.1:2",
        authorities=Authorities.read(bundle),
    )
    LakeFSStoreSerializer(private).pack(tmp_path / "store")
    bundle.unlink()
    opened: list[LakeFSConnection] = []
    monkeypatch.setattr(serializer, "LakeFSObjects", opened.append)
    open_store(tmp_path / "store")
    assert opened == [private]
    assert opened[0].authorities is not None
    assert opened[0].authorities.pem == "-----BEGIN CERTIFICATE-----\n"


def test_what_spark_is_sent_holds_no_secret() -> None:
    sent = pickle.dumps(LakeFSStoreSerializer(CONNECTION).open_store)
    assert b"hush" not in sent
    assert b"open_store" in sent
