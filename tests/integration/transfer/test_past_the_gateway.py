"""A store that LakeFS gives out addresses of: its outages, its refusals, and who sees the bytes."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perago.connections import LakeFSConnection
from perago.errors import BackendUnavailableError
from perago.lakefs import addresses
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.operations.doctor import check_objects
from perago.operations.findings import Finding
from support.fault_proxy import FaultProxy
from support.lake_repository import LakeRepository, a_new_repository
from support.lake_servers import BUCKET, lakefs_on_s3
from support.trees import contents

pytestmark = [pytest.mark.servers, pytest.mark.s3]

SMALL, WHOLE, LARGE = os.urandom(300_000), os.urandom(2 << 20), os.urandom(20 << 20)
SIGNATURE = "X-Amz-Signature"


@pytest.fixture(scope="module")
def store(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[FaultProxy, LakeFSConnection]]:
    """A proxy before a store, and the LakeFS whose addresses lead to the proxy."""
    proxies: list[FaultProxy] = []

    def addressed(endpoint: str) -> str:
        proxies.append(FaultProxy(endpoint))
        return proxies[0].endpoint

    folder = tmp_path_factory.mktemp("faulty") / "server"
    with lakefs_on_s3(folder, addressed=addressed) as server, proxies[0] as proxy:
        yield proxy, server.endpoint.connection


@pytest.fixture
def proxy(store: tuple[FaultProxy, LakeFSConnection]) -> FaultProxy:
    """The proxy before the store, which does nothing yet."""
    proxy, _ = store
    proxy.refuse(0)
    proxy.cut(0)
    proxy.keep_still(0)
    proxy.requests.clear()
    return proxy


@pytest.fixture
def lake(
    proxy: FaultProxy, store: tuple[FaultProxy, LakeFSConnection], tmp_path: Path
) -> LakeRepository:
    return a_new_repository(store[1], tmp_path, f"s3://{BUCKET}/")


@pytest.fixture
def ref(lake: LakeRepository) -> str:
    lake.put("small", SMALL)
    lake.put("whole", WHOLE)
    lake.put("large", LARGE)
    return lake.commit()


class Way:
    """A request for objects, on a client whose store has answered once."""

    def __init__(self, lake: LakeRepository, ref: str, **options: float) -> None:
        self.objects = LakeFSObjects(replace(lake.connection, **options))  # type: ignore[arg-type]
        self.lake, self.ref = lake, ref
        self.read("small", SMALL)

    def read(self, key: str, content: bytes) -> None:
        found = self.objects.read(self.lake.repository, self.ref, key, len(content))
        assert b"".join(found) == content

    def save(self) -> None:
        target = self.lake.root / "saved"
        with target.open("w+b", buffering=0) as file:
            at = self.lake.repository, self.ref, "large", len(LARGE)
            assert sum(self.objects.save(*at, file.fileno())) == len(LARGE)
        assert target.read_bytes() == LARGE

    def write(self, content: bytes) -> None:
        source = self.lake.root / "new"
        source.write_bytes(content)
        self.objects.write(
            self.lake.repository, "main", "new", source, content_type="a/b", metadata={"k": "v"}
        )
        found = self.lake.listing()["new"]
        assert (found.size, found.content_type, found.metadata) == (len(content), "a/b", {"k": "v"})
        assert self.lake.content("new") == content


REQUESTS: dict[str, Callable[[Way], None]] = {
    "read": lambda way: way.read("whole", WHOLE),
    "read large": lambda way: way.read("large", LARGE),
    "save large": lambda way: way.save(),
    "write": lambda way: way.write(WHOLE),
    "write large": lambda way: way.write(LARGE),
}
every_request = pytest.mark.parametrize("name", REQUESTS)


@every_request
def test_no_byte_of_an_object_goes_through_lakefs(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str
) -> None:
    with FaultProxy(lake.connection.server) as before_lakefs:
        through = lake.through(before_lakefs.endpoint)
        REQUESTS[name](Way(through, ref))
        assert [line for line in before_lakefs.requests if "/api/v1/" not in line] == []
    assert any("/data/" in line for line in proxy.requests)


@every_request
def test_one_503_of_the_store_does_not_fail_the_attempt(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str
) -> None:
    way = Way(lake, ref)
    proxy.refuse(3)
    REQUESTS[name](way)
    assert proxy.spent


@every_request
@pytest.mark.parametrize("after", [0, 40], ids=["before the answer", "in its headers"])
def test_a_connection_that_is_cut_is_tried_again(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str, after: int
) -> None:
    way = Way(lake, ref)
    proxy.cut(1, after=after)
    REQUESTS[name](way)
    assert proxy.spent


@pytest.mark.parametrize("name", ["read", "read large"])
def test_a_connection_that_is_cut_in_the_middle_of_the_content_is_tried_again(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str
) -> None:
    way = Way(lake, ref)
    proxy.cut(2, after=100_000)
    REQUESTS[name](way)
    assert proxy.spent


@every_request
def test_a_request_that_is_never_answered_is_asked_again(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str
) -> None:
    way = Way(lake, ref, read_timeout=1.0)
    proxy.keep_still(1)
    REQUESTS[name](way)
    assert proxy.spent


@every_request
@pytest.mark.parametrize("fault", ["503 for ever", "silence"])
def test_a_store_that_stays_away_fails_in_bounded_time_and_no_secret_is_told(
    lake: LakeRepository, proxy: FaultProxy, ref: str, name: str, fault: str
) -> None:
    way = Way(lake, ref, connect_timeout=0.5, read_timeout=0.5, retry_seconds=1.0)
    if fault == "silence":
        proxy.keep_still(1_000_000)
    else:
        proxy.refuse(1_000_000)
    began = time.monotonic()
    with pytest.raises(BackendUnavailableError) as caught:
        REQUESTS[name](way)
    assert time.monotonic() - began < 20
    assert "the object store" in str(caught.value)
    assert "PERAGO_TRANSFER=gateway" in str(caught.value.hint)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SIGNATURE not in told


@pytest.mark.parametrize("fault", ["503", pytest.param("silence", marks=pytest.mark.slow), "a cut"])
def test_a_store_that_cannot_be_used_from_the_start_is_passed_by(
    lake: LakeRepository,
    proxy: FaultProxy,
    ref: str,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a worker may not reach the store: everything goes through the gateway."""
    quick = replace(lake.connection, connect_timeout=2.0, read_timeout=2.0)
    match fault:
        case "503":
            proxy.refuse(1_000_000)
        case "silence":
            proxy.keep_still(1_000_000)
        case _:
            proxy.cut(1_000_000)
    with caplog.at_level(logging.WARNING), replace(lake, connection=quick).workspace(ref) as copy:
        assert contents(copy.data) == {"small": SMALL, "whole": WHOLE, "large": LARGE}
        (copy.data / "whole").write_bytes(LARGE)
        _, branch = lake.stage(copy, ref)
    told = [record.getMessage() for record in caplog.records if "object store" in record.message]
    assert len(told) == 1
    # By another client, which has not heard of it.
    assert lake.content("whole", branch) == LARGE
    assert "set PERAGO_TRANSFER=gateway" in told[0]
    assert SIGNATURE not in told[0]


def test_an_address_of_a_host_that_is_not_there_is_passed_by(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = "http://store.invalid:9000"
    with lakefs_on_s3(tmp_path / "server", addressed=lambda _: nowhere) as server:
        lake = a_new_repository(server.endpoint.connection, tmp_path, f"s3://{BUCKET}/")
        with caplog.at_level(logging.WARNING):
            lake.put("whole", WHOLE)
            with lake.workspace(lake.commit()) as workspace:
                assert contents(workspace.data) == {"whole": WHOLE}
    assert f"the object store {nowhere} did not answer" in caplog.text
    assert SIGNATURE not in caplog.text


def test_doctor_says_whether_the_store_can_be_reached(
    lake: LakeRepository, proxy: FaultProxy, ref: str
) -> None:
    def find() -> Finding:
        quick = replace(lake.connection, read_timeout=1.0)
        with closing(LakeFSControl(quick)) as control:
            (finding,) = check_objects(quick, control, lake.repository)
        return finding

    assert find() == Finding(
        "objects", True, f"move straight to and from {proxy.endpoint}, which answers"
    )
    proxy.cut(1)
    found = find()
    assert not found.ok
    assert f"the object store {proxy.endpoint} did not answer" in found.text
    assert "PERAGO_TRANSFER=gateway" in str(found.hint)
    assert SIGNATURE not in found.text


def test_the_setting_leaves_the_store_alone(
    lake: LakeRepository, proxy: FaultProxy, ref: str
) -> None:
    proxy.requests.clear()
    by_gateway = replace(lake, connection=replace(lake.connection, transfer="gateway"))
    with by_gateway.workspace(ref) as workspace:
        assert contents(workspace.data) == {"small": SMALL, "whole": WHOLE, "large": LARGE}
        (workspace.data / "large").write_bytes(LARGE[::-1])
        _, branch = by_gateway.stage(workspace, ref)
    assert proxy.requests == []
    assert lake.content("large", branch) == LARGE[::-1]


def test_addresses_that_expire_in_the_middle_are_asked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Taken for good although they are not, as if a clock were wrong.
    monkeypatch.setattr(addresses, "_MARGIN_SECONDS", -1000.0)
    with lakefs_on_s3(tmp_path / "server", seconds=2) as server:
        lake = a_new_repository(server.endpoint.connection, tmp_path, f"s3://{BUCKET}/")
        for number in range(20):
            lake.put(f"k{number:02}", b"%d" % number)
        lake.put("large", LARGE)
        ref = lake.commit()
        with closing(lake.objects) as objects:

            def read(key: str, size: int) -> Iterator[memoryview]:
                return objects.read(lake.repository, ref, key, size)

            pieces = read("large", len(LARGE))
            begun = [next(pieces), *read("k00", 1)]
            time.sleep(3)
            assert b"".join(begun[:1] + list(pieces)) == LARGE
            found = [b"".join(read(f"k{n:02}", len(str(n)))) for n in range(20)]
            assert found == [b"%d" % n for n in range(20)]
