"""Staging touches what changed and nothing else, and keeps what objects carry."""

from __future__ import annotations

import os
from pathlib import Path

import lakefs_sdk
import obstore
import pytest
from obstore.store import S3Store

from perago.transfer.inventory import RemoteObject
from support.fault_proxy import FaultProxy
from support.lake_repository import LakeRepository

pytestmark = pytest.mark.servers

MANY = 2_100


def gateway(lake: LakeRepository) -> S3Store:
    """Somebody else's S3 client."""
    return S3Store(
        lake.repository,
        endpoint=lake.connection.gateway,
        access_key_id=lake.connection.access_key_id,
        secret_access_key=lake.connection.secret_access_key.get_secret_value(),
        region="us-east-1",
        client_options={"allow_http": True},
    )


def labels(item: RemoteObject) -> tuple[str, dict[str, str]]:
    return item.content_type, item.metadata


def test_more_objects_than_two_pages_come_down_and_are_deleted_in_few_calls(
    lake: LakeRepository, proxy: FaultProxy
) -> None:
    with lake.workspace(lake.commit()) as workspace:
        for number in range(MANY):
            (workspace.data / f"{number:05}").write_bytes(b"%d" % number)
        plan, branch = lake.stage(workspace, "main")
    assert len(plan.uploads) == MANY
    seen = lake.through(proxy.endpoint)
    # The staging branch is read as a ref: a listing does not care.
    with seen.workspace(_committed(lake, branch)) as workspace:
        assert len(list(workspace.data.iterdir())) == MANY
        assert (workspace.data / "02099").read_bytes() == b"2099"
        listings = [line for line in proxy.requests if "/objects/ls?prefix" in line]
        assert len(listings) == 3
        for file in workspace.data.iterdir():
            file.unlink()
        plan = workspace.changes().collect()
        staging = lake.staging(branch)
        proxy.requests.clear()
        workspace.stage(plan, staging)
    assert len(plan.deletes) == MANY
    assert [line.split()[0] for line in proxy.requests] == ["POST"] * 3
    assert lake.listing(staging.branch) == {}


def _committed(lake: LakeRepository, branch: str) -> str:
    creation = lakefs_sdk.CommitCreation(message="test")
    return str(lake.client.commits_api.commit(lake.repository, branch, creation).id)


def test_only_changed_files_are_uploaded(lake: LakeRepository, proxy: FaultProxy) -> None:
    for number in range(50):
        lake.put(f"f{number:02}", b"%d" % number)
    ref = lake.commit()
    before = lake.addresses(ref)
    with lake.through(proxy.endpoint).workspace(ref) as workspace:
        (workspace.data / "f07").write_bytes(b"changed")
        (workspace.data / "new").write_bytes(b"new")
        plan = workspace.changes().collect()
        staging = lake.staging(ref)
        proxy.requests.clear()
        workspace.stage(plan, staging)
    assert plan.unchanged == 49
    assert [line.split()[0] for line in proxy.requests] == ["POST", "POST"]
    assert all("/objects?path=" in line for line in proxy.requests)
    after = lake.addresses(staging.branch)
    assert {key for key in after if after[key] != before.get(key)} == {"f07", "new"}


def test_an_unchanged_multipart_object_is_not_uploaded_again(lake: LakeRepository) -> None:
    """Its checksum is no hash of its content, so only a hash taken here can tell."""
    content = os.urandom(12 << 20)
    obstore.put(gateway(lake), "main/big", content, use_multipart=True, chunk_size=6 << 20)
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        (workspace.data / "big").unlink()
        (workspace.data / "big").write_bytes(content)
        assert not workspace.changes()


def test_untouched_files_keep_content_type_and_user_metadata(lake: LakeRepository) -> None:
    """An upload of everything would give them the defaults."""
    lake.put("api", b"1", "text/csv", owner="me", **{"Mixed-Case": "Größe\n"})
    _put_through_gateway(lake, "gateway")
    lake.put("other", b"3")
    ref = lake.commit()
    before = lake.listing(ref)
    with lake.workspace(ref) as workspace:
        (workspace.data / "other").write_bytes(b"changed")
        _, branch = lake.stage(workspace, ref)
    after = lake.listing(branch)
    assert after["api"] == before["api"]
    assert after["gateway"] == before["gateway"]
    assert before["api"].metadata == {"owner": "me", "Mixed-Case": "Größe\n"}


def test_changed_files_keep_content_type_and_user_metadata(lake: LakeRepository) -> None:
    lake.put("api", b"1", "text/csv", owner="me", **{"Mixed-Case": "Größe\n"})
    lake.put("control\tcharacter", b"1", "text/html; charset=utf-8", owner="me")
    lake.put("plain", b"1", "application/vnd.x+json")
    lake.client.objects_api.upload_object(lake.repository, "main", "sdk", content=b"1")
    _put_through_gateway(lake, "gateway")
    ref = lake.commit()
    before = lake.listing(ref)
    with lake.workspace(ref) as workspace:
        for file in workspace.data.iterdir():
            file.write_bytes(b"changed")
        plan, branch = lake.stage(workspace, ref)
    assert len(plan.uploads) == 5
    after = lake.listing(branch)
    assert {key: labels(item) for key, item in after.items()} == {
        key: labels(item) for key, item in before.items()
    }
    assert {lake.content(key, branch) for key in after} == {b"changed"}
    # What an S3 client sees must not change either.
    attributes = obstore.get(gateway(lake), f"{branch}/gateway").attributes
    assert attributes["owner"] == "gateway user"


def _put_through_gateway(lake: LakeRepository, key: str) -> None:
    attributes = {"Content-Type": "audio/wav", "owner": "gateway user"}
    obstore.put(gateway(lake), f"main/{key}", b"2", attributes=attributes)


def test_a_large_changed_file_keeps_content_type_and_user_metadata(
    lake: LakeRepository, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(20 << 20))
    lake.put("large", large, "video/mp4", owner="me")
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        with (workspace.data / "large").open("r+b") as file:
            file.write(b"changed")
        _, branch = lake.stage(workspace, ref)
    assert labels(lake.listing(branch)["large"]) == ("video/mp4", {"owner": "me"})
    assert lake.content("large", branch)[:7] == b"changed"


def test_variables_for_aws_in_the_environment_do_not_reach_the_gateway(
    lake: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_S3_EXPRESS", "true")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    lake.put("a", b"x")
    with lake.workspace(lake.commit()) as workspace:
        assert (workspace.data / "a").read_bytes() == b"x"
