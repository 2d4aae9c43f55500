"""Requests to LakeFS: when they are repeated, what they carry, how large their parts are."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import (
    BackendDeniedError,
    BackendError,
    BackendUnavailableError,
    LostReplyError,
)
from perago.lakefs import gateway, pieces
from perago.lakefs.control import LakeFSControl
from perago.lakefs.garbage import LakeFSGarbage
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.pieces import pieces_at_once
from perago.protocol.workspace import StagedWorkspace, StagingBranch
from perago.transfer import inventory
from perago.transfer.inventory import PIECE, piece_size
from support.adapter_calls import CONTROL, ID, SECRET, lakefs
from support.garbage_server import GarbageServer, answer

STAGING = StagingBranch("repo", "staging")
CHANGES_SENT_ONCE = ["create_branch", "commit", "merge", "relocate"]
_GOOD = {
    "POST /api/v1/repositories/repo/branches ": answer("201 Created", ID.encode(), "text/html"),
    "POST /api/v1/repositories/repo/branches/staging/commits ": answer(
        "201 Created", json.dumps({"id": ID, "parents": [], "creation_date": 1}).encode()
    ),
    "POST /api/v1/repositories/repo/refs/staging/merge/main ": answer(
        "200 OK", json.dumps({"reference": ID, "summary": {}}).encode()
    ),
    "PUT /api/v1/repositories/repo/branches/main/hard_reset?": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that nothing listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class LateServer:
    """Listens on a port only after some time."""

    def __init__(self, port: int, seconds: float, good: dict[str, bytes]) -> None:
        self._port, self._seconds, self._good = port, seconds, good
        self.requests: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        time.sleep(self._seconds)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        with listener, listener.accept()[0] as end:
            request = end.recv(1 << 16).decode("latin-1")
            self.requests.append(request)
            for start, data in self._good.items():
                if request.startswith(start):
                    end.sendall(data)


@pytest.mark.parametrize("name", CHANGES_SENT_ONCE)
def test_a_change_whose_connection_is_refused_is_retried(name: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    late = LateServer(port, 0.3, _GOOD)
    connection = lakefs(f"http://127.0.0.1:{port}")
    with closing(LakeFSControl(connection)) as lake:
        late.start()
        if name == "merge":
            staged = StagedWorkspace("repo", "staging", ID)
            lake.merge(staged, "main", message="m", metadata={}, timeout=10)
        elif name == "relocate":
            lake.relocate(STAGING, "main", timeout=10)
        elif name == "commit":
            _with_time(lake)
            lake.commit(STAGING, "m", {})
        else:
            _with_time(lake)
            lake.create_branch(STAGING, ID)
    assert len(late.requests) == 1


def _with_time(lake: LakeFSControl) -> None:
    lake._api.seconds = 10.0


@pytest.mark.parametrize("name", CHANGES_SENT_ONCE)
def test_a_change_that_was_sent_is_not_repeated(name: str) -> None:
    with (
        GarbageServer(lambda: iter([b""])) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
    ):
        with pytest.raises(LostReplyError):
            CONTROL[name].make(lake)
        assert len(server.requests) == 1


def test_a_change_that_is_refused_for_ever_certainly_was_not_made(free_port: int) -> None:
    with closing(LakeFSControl(lakefs(f"http://127.0.0.1:{free_port}"))) as lake:
        with pytest.raises(BackendUnavailableError) as caught:
            lake.create_branch(STAGING, ID)
        assert type(caught.value) is BackendUnavailableError


def test_a_list_whose_pages_repeat_ends() -> None:
    page = {
        "results": [{"id": "b", "commit_id": ID}],
        "pagination": {"has_more": True, "next_offset": "b", "results": 1, "max_per_page": 1},
    }
    with (
        GarbageServer(lambda: iter([answer("200 OK", json.dumps(page).encode())])) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
    ):
        with pytest.raises(BackendUnavailableError, match="repeats"):
            lake.list_branches("repo", "b")
        assert len(server.requests) == 2


@pytest.mark.parametrize("found", [[], ["b" * 64]], ids=["nothing", "another"])
def test_a_history_that_does_not_begin_with_its_commit_is_none(found: list[str]) -> None:
    """An empty history would pass for that of a task that never published."""
    results = [{"id": it, "parents": [], "creation_date": 1} for it in found]
    more = {"has_more": False, "next_offset": "", "results": len(found), "max_per_page": 10}
    page = answer("200 OK", json.dumps({"pagination": more, "results": results}).encode())
    with (
        GarbageServer(lambda: iter([page])) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
        pytest.raises(BackendUnavailableError, match="it begins with another"),
    ):
        lake.ancestry("repo", ID, 10)


def test_an_error_repeats_no_credentials() -> None:
    def echo() -> Iterator[bytes]:
        said = {"message": server.heads[-1] + SECRET}
        return iter([answer("403 Forbidden", json.dumps(said).encode())])

    with (
        GarbageServer(echo) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
    ):
        with pytest.raises(BackendDeniedError, match="Basic") as caught:
            lake.get_commit("repo", ID)
        assert SECRET not in str(caught.value)
        assert server.heads[0].partition("Basic ")[2].split()[0] not in str(caught.value)


def test_proxies_of_the_environment_are_ignored_by_every_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with GarbageServer(lambda: iter([answer("503 No", b"")])) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        head = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nETag: x\r\n"
        user = answer("200 OK", b'{"user": {"id": "u"}}')
        good = {"GET /repo/": answer("200 OK", b"content", headers=head), "GET /api/": user}
        with (
            GarbageServer(lambda: iter([b""]), good) as server,
            closing(LakeFSControl(lakefs(server.url))) as lake,
            closing(LakeFSObjects(lakefs(server.url))) as objects,
        ):
            lake.check_access()
            assert b"".join(objects.read("repo", ID, "key", 7)) == b"content"
        assert proxy.requests == []


@pytest.mark.parametrize("size", [0, 1, PIECE, 80 << 30, (1 << 40) + 1, 5 << 40])
def test_parts_grow_so_that_five_tebibytes_fit_in_ten_thousand(size: int) -> None:
    piece = piece_size(size)
    assert piece * 10_000 >= size
    assert piece % PIECE == 0
    # What is in memory at once: small for all but the largest objects, one part for those.
    assert pieces_at_once(piece) * piece <= max(3 * PIECE, piece)
    assert piece <= 528 << 20


def test_a_file_is_written_in_no_more_parts_than_the_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_MAX_PARTS", 2)
    for module in (inventory, gateway, pieces):
        monkeypatch.setattr(module, "PIECE", 5 << 20)
    file = tmp_path / "large"
    with file.open("wb") as large:
        large.truncate(19 << 20)
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    done = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
    good = {
        "POST /repo/staging/large?uploads": answer("200 OK", begun, "application/xml"),
        "PUT /repo/staging/large?": answer("200 OK", b"", headers="ETag: x\r\n"),
        "POST /repo/staging/large?uploadId": answer("200 OK", done, "application/xml"),
    }
    with (
        GarbageServer(lambda: iter([b""]), good) as server,
        closing(LakeFSObjects(replace(lakefs(server.url), read_timeout=20.0))) as objects,
    ):
        objects.write("repo", "staging", "large", file, content_type="a/b", metadata={})
        parts = [line for line in server.requests if line.startswith("PUT")]
        assert len(parts) == 2


_NOT_FOUND = answer("404 Not Found", b'{"message":"branch not found"}\n')


def _listed(*names: str) -> bytes:
    found = [{"id": name, "commit_id": ID} for name in names]
    page = {"results": found, "pagination": {"has_more": False, "next_offset": ""}}
    return answer("200 OK", json.dumps(page).encode())


_LISTING = "GET /api/v1/repositories/repo/branches?"


@pytest.mark.parametrize("others", [[], ["staging-2"]])
def test_a_branch_that_is_not_found_and_not_listed_is_deleted(others: list[str]) -> None:
    with (
        GarbageServer(lambda: iter([_NOT_FOUND]), {_LISTING: _listed(*others)}) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
        closing(LakeFSGarbage(lakefs(server.url))) as garbage,
    ):
        lake.delete_branch(STAGING)
        assert garbage.delete_branch("repo", "staging", ID) == "gone"


@pytest.mark.parametrize(
    "listing", [_listed("staging"), answer("503 Away", b""), _NOT_FOUND], ids=["there", "away", "?"]
)
def test_a_branch_that_is_not_found_and_may_be_there_is_not_deleted(listing: bytes) -> None:
    """A licence would be believed withdrawn that still lets a late merge land."""
    with (
        GarbageServer(lambda: iter([_NOT_FOUND]), {_LISTING: listing}) as server,
        closing(LakeFSControl(lakefs(server.url))) as lake,
        closing(LakeFSGarbage(lakefs(server.url))) as garbage,
    ):
        with pytest.raises(BackendError):
            lake.delete_branch(STAGING)
        with pytest.raises(BackendError):
            garbage.delete_branch("repo", "staging", ID)
