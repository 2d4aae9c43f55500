"""Addresses for reading: few requests for many objects, and none that is stale or of a branch."""

from __future__ import annotations

import bisect
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.errors import BackendUnavailableError, NotFoundError
from perago.lakefs.addresses import PresignedAddress, ReadAddresses, RenewedAddress, just_before
from perago.retry import retrying_times
from perago.transfer.threads import run_over

COMMIT = "c" * 64


class Api:
    """Answers like LakeFS's API, and counts the signatures."""

    clock_difference = 0.0

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.asked: list[str] = []
        self.signed = 0
        self.good_for = 900.0
        # What the user may not read is listed, and not signed.
        self.forbidden: set[str] = set()
        self._lock = threading.Lock()

    def get(self, what: str, path: str, read: Any, query: dict[str, Any], *, retrier: Any) -> Any:
        kind = path.rpartition("/")[2]
        with self._lock:
            self.asked.append(kind)
            if kind == "stat":
                if query["path"] not in self.keys:
                    raise NotFoundError(what)
                return read(json.dumps(self._entry(query["path"])).encode())
            at = bisect.bisect_right(self.keys, query["after"])
            page = self.keys[at : at + query["amount"]]
            more = at + len(page) < len(self.keys)
            pagination = {"has_more": more, "next_offset": page[-1] if more else ""}
            results = [self._entry(key) for key in page]
        return read(json.dumps({"pagination": pagination, "results": results}).encode())

    def _entry(self, key: str) -> dict[str, object]:
        entry: dict[str, object] = {"path": key, "path_type": "object", "size_bytes": 1}
        if key in self.forbidden:
            return {**entry, "physical_address": f"s3://bucket/{key}"}
        self.signed += 1
        expiry = int(time.time() + self.good_for)
        address = f"http://store/{key}?number={self.signed}"
        return {**entry, "physical_address": address, "physical_address_expiry": expiry}


def opened(api: Api) -> ReadAddresses:
    return ReadAddresses(api, retrying_times)  # type: ignore[arg-type]


def key_of(address: PresignedAddress) -> str:
    return address.url.removeprefix("http://store/").partition("?")[0]


KEYS = [f"k{number:05}" for number in range(5000)]


def test_thousands_of_objects_in_order_cost_a_few_requests() -> None:
    api = Api(KEYS)
    found = opened(api)
    assert [key_of(found.find("repo", COMMIT, key)) for key in KEYS] == KEYS
    assert set(api.asked) == {"ls"}
    assert len(api.asked) <= 9
    assert api.signed == len(KEYS)


def test_so_they_do_on_many_threads() -> None:
    api = Api(KEYS)
    found, seen = opened(api), dict[str, str]()

    def one(key: str) -> None:
        seen[key] = key_of(found.find("repo", COMMIT, key))

    run_over(KEYS, one, 16)
    assert seen == {key: key for key in KEYS}
    assert len(api.asked) < 100


def test_an_outage_ends_the_waiting_of_all_threads_at_once() -> None:
    api, began = Api(KEYS), threading.Barrier(8)
    failures: list[Exception] = []

    def fail(*_: object, **__: object) -> None:
        time.sleep(0.5)
        raise BackendUnavailableError("away")

    api.get = fail  # type: ignore[method-assign]
    found = opened(api)

    def one(key: str) -> None:
        began.wait(20)
        try:
            found.find("repo", COMMIT, key)
        except BackendUnavailableError as error:
            failures.append(error)

    started = time.monotonic()
    run_over(KEYS[:8], one, 8)
    assert time.monotonic() - started < 2.0
    assert len(failures) == 8


def test_a_few_objects_here_and_there_cost_few_signatures_that_nobody_uses() -> None:
    api = Api(KEYS)
    found = opened(api)
    some = KEYS[::100]
    assert [key_of(found.find("repo", COMMIT, key)) for key in some] == some
    assert api.signed <= 20 * len(some)


def test_a_small_workspace_costs_one_request() -> None:
    api = Api(KEYS)
    found = opened(api)
    for key in KEYS[1000:1040]:
        found.find("repo", COMMIT, key)
    assert api.asked == ["ls"]
    assert api.signed <= 64


def test_an_object_of_a_branch_is_asked_for_each_time() -> None:
    api = Api(KEYS)
    found = opened(api)
    urls = {found.find("repo", "main", KEYS[0]).url for _ in range(3)}
    assert len(urls) == 3
    assert api.asked == ["stat"] * 3


def test_another_commit_has_addresses_of_its_own() -> None:
    api = Api(KEYS)
    found = opened(api)
    first = found.find("repo", COMMIT, KEYS[1])
    found.find("repo", COMMIT, KEYS[0])
    assert found.find("repo", "d" * 64, KEYS[1]).url != first.url
    assert api.asked == ["ls", "ls", "ls"]


def test_a_stale_address_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(KEYS)
    found = opened(api)
    found.find("repo", COMMIT, KEYS[0])
    later = time.monotonic() + 1000
    monkeypatch.setattr("perago.lakefs.addresses.time.monotonic", lambda: later)
    assert not found.find("repo", COMMIT, KEYS[1]).is_stale
    assert api.asked == ["ls", "ls"]


def test_the_time_is_that_of_lakefs(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(KEYS)
    monkeypatch.setattr(Api, "clock_difference", 2000.0)
    assert opened(api).find("repo", "main", KEYS[0]).is_stale
    monkeypatch.setattr(Api, "clock_difference", -2000.0)
    assert not opened(api).find("repo", "main", KEYS[0]).is_stale


def test_an_object_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        opened(Api(KEYS)).find("repo", COMMIT, "k00000x")


def test_an_address_that_is_not_signed_is_none() -> None:
    api = Api(KEYS)
    api.forbidden = {KEYS[0]}
    with pytest.raises(ValueError, match="no presigned address"):
        opened(api).find("repo", COMMIT, KEYS[0])
    assert api.asked == ["ls", "stat"]


def test_an_address_is_in_no_representation() -> None:
    assert "secret" not in repr(PresignedAddress.undated("http://store/secret"))


def test_a_refused_address_is_asked_for_once_by_all_that_were_refused() -> None:
    asked: list[PresignedAddress] = []

    def ask() -> PresignedAddress:
        asked.append(PresignedAddress.undated(f"http://store/{len(asked)}"))
        return asked[-1]

    address = RenewedAddress(ask)
    first = address.url()
    assert address.url() == first
    assert address.url(refused=first) == address.url(refused=first) != first
    assert len(asked) == 2


characters = st.characters(exclude_categories=["Cs"])


@given(st.text(characters, min_size=1), st.text(characters))
def test_nothing_lies_between_a_key_and_what_is_listed_after(key: str, other: str) -> None:
    start = just_before(key)
    assert start.encode() < key.encode()
    assert not start.encode() < other.encode() < key.encode() or "\U0010ffff" in other
