"""Outages: waited for where a request may be repeated, bounded always, and no secret told."""

from __future__ import annotations

import os
import socket
import traceback
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import (
    BackendDeniedError,
    BackendRefusedError,
    BackendUnavailableError,
    ConfigurationError,
    NotFoundError,
)
from perago.transfer.engine import Engine
from support.fault_proxy import FaultProxy
from support.lake_repository import LakeRepository, a_new_repository
from support.saved_objects import save_object

pytestmark = pytest.mark.servers

CONTENT = os.urandom(300_000)
LARGE = os.urandom(20 << 20)
Request = Callable[[LakeRepository, Path], object]


def _list(lake: LakeRepository, _: Path) -> object:
    return list(lake.objects.list(lake.repository, "main", ""))


def _read(key: str, size: int) -> Request:
    def read(lake: LakeRepository, _: Path) -> object:
        return b"".join(bytes(p) for p in lake.objects.read(lake.repository, "main", key, size))

    return read


def _save(lake: LakeRepository, source: Path) -> object:
    """Into a file; what is left out is read from there on, as downloads do it."""
    target = source.with_name("saved")
    save_object(lake.objects, lake.repository, "main", "large", len(LARGE), target)
    return target.read_bytes()


def _write(key: str, **metadata: str) -> Request:
    def write(lake: LakeRepository, source: Path) -> None:
        lake.objects.write(
            lake.repository, "main", key, source, content_type="a/b", metadata=metadata
        )

    return write


def _write_large(lake: LakeRepository, source: Path) -> None:
    """In parts, which are begun and ended by requests of their own."""
    large = source.with_name("large-source")
    lake.objects.write(lake.repository, "main", "new", large, content_type="a/b", metadata={})


def _delete(lake: LakeRepository, _: Path) -> None:
    lake.objects.delete(lake.repository, "main", ["small", "not there"])


REQUESTS = {
    "list": _list,
    "read": _read("small", len(CONTENT)),
    "read large": _read("large", len(LARGE)),
    "read large into a file": _save,
    "read through the API": _read("control\n", len(CONTENT)),
    "write": _write("new"),
    "write large": _write_large,
    "write through the API": _write("new\n"),
    "write metadata": _write("new", owner="me"),
    "delete": _delete,
}
every_request = pytest.mark.parametrize("request_name", REQUESTS)


@pytest.fixture
def lake(connection: LakeFSConnection, tmp_path: Path) -> LakeRepository:
    """Through the gateway; ``test_past_the_gateway`` has the outages of a store."""
    return a_new_repository(connection, tmp_path)


@pytest.fixture
def filled(lake: LakeRepository, tmp_path: Path) -> LakeRepository:
    large = tmp_path / "large-source"
    large.write_bytes(LARGE)
    lake.put("small", CONTENT)
    lake.put("control\n", CONTENT)
    lake.put("large", large)
    return lake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_bytes(CONTENT)
    return path


@every_request
def test_one_503_does_not_fail_the_attempt(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    """Requests that may be repeated are repeated."""
    proxy.refuse(3)
    answer = REQUESTS[request_name](filled.through(proxy.endpoint), source)
    assert proxy.spent
    _assert_done(filled, request_name, answer)


@every_request
@pytest.mark.parametrize("after", [0, 40], ids=["before the answer", "in its headers"])
def test_a_connection_that_is_cut_is_tried_again(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str, after: int
) -> None:
    proxy.cut(1, after=after)
    answer = REQUESTS[request_name](filled.through(proxy.endpoint), source)
    assert proxy.spent
    _assert_done(filled, request_name, answer)


@pytest.mark.parametrize(
    "request_name",
    ["list", "read", "read large", "read large into a file", "read through the API"],
)
def test_a_connection_that_is_cut_in_the_middle_of_the_content_is_tried_again(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    proxy.cut(2, after=600 if request_name == "list" else 100_000)
    answer = REQUESTS[request_name](filled.through(proxy.endpoint), source)
    assert proxy.spent
    _assert_done(filled, request_name, answer)


def _assert_done(lake: LakeRepository, request_name: str, answer: object) -> None:
    listed = lake.listing()
    if request_name == "list":
        assert answer == list(listed.values())
    elif request_name.startswith("read"):
        assert answer == (LARGE if "large" in request_name else CONTENT)
    elif request_name == "delete":
        assert set(listed) == {"control\n", "large"}
    else:
        (key,) = {key for key in listed if key.startswith("new")}
        assert lake.content(key) == (LARGE if "large" in request_name else CONTENT)
        assert listed[key].metadata == ({"owner": "me"} if "metadata" in request_name else {})


@every_request
def test_a_lakefs_that_stays_away_fails_in_bounded_time(
    filled: LakeRepository, source: Path, request_name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    away = filled.through(address, retry_seconds=1.0)
    with pytest.raises(BackendUnavailableError) as caught:
        REQUESTS[request_name](away, source)
    assert "LakeFS" in str(caught.value)


@every_request
def test_a_lakefs_that_answers_503_for_ever_fails_in_bounded_time(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    proxy.refuse(1_000_000)
    with pytest.raises(BackendUnavailableError, match="503"):
        REQUESTS[request_name](filled.through(proxy.endpoint, retry_seconds=1.0), source)
    assert len(proxy.requests) > 1


@every_request
def test_a_silent_server_does_not_block_for_ever(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    """Every request has a timeout, and their repetition has an end."""
    proxy.keep_still(1_000_000)
    silent = filled.through(
        proxy.endpoint, connect_timeout=0.5, read_timeout=0.5, retry_seconds=1.0
    )
    with pytest.raises(BackendUnavailableError):
        REQUESTS[request_name](silent, source)


@every_request
def test_a_request_that_is_never_answered_is_asked_again(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    proxy.keep_still(1)
    answer = REQUESTS[request_name](filled.through(proxy.endpoint, read_timeout=1.0), source)
    assert proxy.spent
    _assert_done(filled, request_name, answer)


def test_a_whole_attempt_lives_through_an_unsteady_server(
    filled: LakeRepository, proxy: FaultProxy
) -> None:
    ref = filled.commit()
    unsteady = filled.through(proxy.endpoint)
    proxy.refuse(5)
    with unsteady.workspace(ref) as workspace:
        assert (workspace.data / "large").read_bytes() == LARGE
        (workspace.data / "large").unlink()
        (workspace.data / "small").write_bytes(b"changed")
        plan = workspace.changes()
        staging = filled.staging(ref)
        proxy.cut(2)
        workspace.stage(plan, staging)
    assert proxy.spent
    assert set(filled.listing(staging.branch)) == {"control\n", "small"}


@pytest.fixture
def denied(filled: LakeRepository) -> LakeRepository:
    wrong = replace(filled.connection, secret_access_key=SecretStr("a-wrong-secret-key"))
    return replace(filled, connection=wrong)


def _assert_tells_no_secret(told: str, connection: LakeFSConnection) -> None:
    secret = connection.secret_access_key.get_secret_value()
    assert secret not in told
    assert b64encode(f"{connection.access_key_id}:{secret}".encode()).decode() not in told


@every_request
def test_wrong_credentials_are_named_as_such_and_never_shown(
    denied: LakeRepository, source: Path, request_name: str
) -> None:
    with pytest.raises(BackendDeniedError) as caught:
        REQUESTS[request_name](denied, source)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    _assert_tells_no_secret(told, denied.connection)


@every_request
def test_no_secret_is_in_the_error_of_an_outage(
    filled: LakeRepository, proxy: FaultProxy, source: Path, request_name: str
) -> None:
    proxy.refuse(1_000_000)
    with pytest.raises(BackendUnavailableError) as caught:
        REQUESTS[request_name](filled.through(proxy.endpoint, retry_seconds=0.1), source)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    _assert_tells_no_secret(told, filled.connection)


def test_no_secret_is_in_a_representation(lake: LakeRepository) -> None:
    objects = lake.objects
    lake.put("a", b"x")
    told = repr(lake.connection) + str(lake.connection) + repr(objects) + repr(Engine(objects))
    _assert_tells_no_secret(told, lake.connection)


def test_an_endpoint_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        LakeFSConnection("http://user:pass-word@127.0.0.1:1", "key", SecretStr("s"))
    assert "pass-word" not in str(caught.value) + str(caught.value.hint)


@pytest.mark.parametrize("request_name", ["read", "write", "write through the API"])
def test_a_repository_that_is_not_there_is_said_at_once(
    lake: LakeRepository, source: Path, request_name: str
) -> None:
    missing = replace(lake, repository="no-such-repository")
    with pytest.raises(NotFoundError) as caught:
        REQUESTS[request_name](missing, source)
    assert "Debug source" not in str(caught.value)


def test_an_address_that_is_not_lakefs_is_refused(lake: LakeRepository) -> None:
    elsewhere = lake.through(lake.connection.server + "/not-the-api", retry_seconds=0.5)
    with pytest.raises((BackendRefusedError, BackendUnavailableError)):
        _list(elsewhere, Path())
