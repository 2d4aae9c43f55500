"""A connection in a file: read by this user only, and complete."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.lakefs import store_serializer as serializer
from perago.lakefs.store_serializer import LakeFSStoreSerializer, open_store

CONNECTION = LakeFSConnection("http://127.0.0.1:1", "key", SecretStr("hush"), patience=3.0)


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


def test_what_spark_is_sent_holds_no_secret() -> None:
    sent = pickle.dumps(LakeFSStoreSerializer(CONNECTION).open_store)
    assert b"hush" not in sent
    assert b"open_store" in sent
