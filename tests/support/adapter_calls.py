"""Every method of the adapters, callable with made-up arguments."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from perago.conductor.client import ConductorAttempts
from perago.conductor.inspection import ConductorInspection
from perago.conductor.taskdefs import ConductorTaskDefs
from perago.conductor.workflows import ConductorWorkflows
from perago.connections import ConductorConnection, LakeFSConnection
from perago.lakefs.api import LakeFSApi
from perago.lakefs.control import LakeFSControl
from perago.lakefs.garbage import LakeFSGarbage
from perago.lakefs.inspection import LakeFSInspection
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.presigned import PresignedClient
from perago.lakefs.repositories import LakeFSRepositories
from perago.lakefs.staging import Target
from perago.lakefs.store_client import host_of
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed
from perago.protocol.workspace import Commit, StagedWorkspace, StagingBranch
from perago.transfer.inventory import RemoteObject, SmallWrite
from support.garbage_server import HERE, answer, placed_answer

ID = "a" * 64
SECRET = "lakefs-secret-7a1f"
_STAGING = StagingBranch("repo", "staging")
_COMMIT = Commit(ID, ("b" * 64,), {}, created=datetime.now(tz=UTC))
_CLAIM = Claim(Attempt("workflow", "task", 0, "step"), "token")
_REF = answer("200 OK", json.dumps({"id": "name", "commit_id": ID}).encode())


@dataclass(frozen=True)
class Call:
    """One method: what it does to the server, and the good answers on the way to its own."""

    make: Callable[[Any], object]
    changes: bool = False
    good: tuple[tuple[str, bytes], ...] = ()


class Patience:
    """For how long an adapter waits for an answer.

    Long where the answer comes at once: on a busy machine a request that cannot be sent in time
    is rightly no lost reply. Short where no answer ever ends.
    """

    seconds = 10.0
    of_endless = 3.0


def lakefs(url: str) -> LakeFSConnection:
    return LakeFSConnection(
        url,
        "key",
        SecretStr(SECRET),
        connect_timeout=Patience.seconds,
        read_timeout=Patience.seconds,
        retry_seconds=0.1,
        transfer="gateway",
    )


def presigned(url: str) -> PresignedClient:
    """A client of a store that has answered before, so that a failure of it is one."""
    connection = replace(lakefs(url), transfer="auto")
    client = PresignedClient(connection, LakeFSApi(connection))
    client._have_answered.add(host_of(url))
    return client


def conductor(url: str, **credentials: Any) -> ConductorConnection:
    return ConductorConnection(
        url, connect_timeout=Patience.seconds, read_timeout=Patience.seconds, **credentials
    )


def _write(key: str, metadata: dict[str, str] | None = None) -> Callable[[Any], object]:
    def write(objects: LakeFSObjects) -> None:
        objects.write(
            "repo",
            "staging",
            key,
            Path(__file__),
            content_type="text/plain",
            metadata=metadata or {},
        )

    return write


def _read_many(client: LakeFSObjects | PresignedClient, ref: str) -> None:
    """As a download does: what is left out is read by itself, and that says what is wrong."""
    taken = list(client.read_many("repo", ref, [RemoteObject("key", 7)], 4))
    assert taken == []
    list(client.read("repo", ref, "key", 7))


def _save(client: LakeFSObjects | PresignedClient, ref: str) -> None:
    """As a download does: what is left out is read, and that says what is wrong."""
    with tempfile.TemporaryFile() as file:
        at = "repo", ref, "key", 20 << 20
        assert list(client.save(*at, file.fileno())) == []
    list(client.read(*at))


def _write_many(objects: LakeFSObjects) -> None:
    taken = list(objects.write_many("repo", "staging", [SmallWrite("key", b"x", "text/plain")], 4))
    assert taken == []
    _write("key")(objects)


CONTROL: dict[str, Call] = {
    "check_access": Call(lambda lake: lake.check_access()),
    "read_version": Call(lambda lake: lake.read_version()),
    "get_commit": Call(lambda lake: lake.get_commit("repo", ID)),
    "get_head": Call(lambda lake: lake.get_head("repo", "main")),
    "log": Call(lambda lake: lake.log("repo", "main", 10)),
    "ancestry": Call(lambda lake: lake.ancestry("repo", ID, 10)),
    "is_on_branch": Call(
        lambda lake: lake.is_on_branch("repo", "main", "b" * 64),
        good=(("GET /api/v1/repositories/repo/branches/main ", _REF),),
    ),
    "has_uncommitted_changes": Call(lambda lake: lake.has_uncommitted_changes("repo", "main")),
    "changes_actions": Call(lambda lake: lake.changes_actions("repo", _COMMIT)),
    "has_fence": Call(lambda lake: lake.has_fence("repo", ID)),
    "read_fence": Call(lambda lake: lake.read_fence("repo", ID)),
    "default_branch": Call(lambda lake: lake.default_branch("repo")),
    "write_small": Call(lambda lake: lake.write_small(_STAGING, "path", b"x"), changes=True),
    "has_action_runs": Call(lambda lake: lake.has_action_runs("repo", "main")),
    "create_branch": Call(lambda lake: lake.create_branch(_STAGING, ID), changes=True),
    "delete_branch": Call(lambda lake: lake.delete_branch(_STAGING), changes=True),
    "commit": Call(lambda lake: lake.commit(_STAGING, "message", {}), changes=True),
    "merge": Call(
        lambda lake: lake.merge(
            StagedWorkspace("repo", "staging", ID),
            "main",
            message="m",
            metadata={},
            timeout=Patience.seconds,
        ),
        changes=True,
    ),
    "revert": Call(lambda lake: lake.revert(_STAGING, ID), changes=True),
    "cherry_pick": Call(lambda lake: lake.cherry_pick(_STAGING, ID), changes=True),
    "relocate": Call(
        lambda lake: lake.relocate(_STAGING, "main", timeout=Patience.seconds), changes=True
    ),
    "list_branches": Call(lambda lake: lake.list_branches("repo", "staging")),
    "list_tags": Call(lambda lake: lake.list_tags("repo", "perago")),
    "is_same": Call(lambda lake: lake.is_same("repo", ID, "b" * 64)),
    "tag": Call(lambda lake: lake.tag("repo", "tag", ID), changes=True),
}

OBJECTS: dict[str, Call] = {
    "check_gateway": Call(lambda objects: objects.check_gateway()),
    "list": Call(lambda objects: list(objects.list("repo", ID, ""))),
    "level": Call(lambda objects: list(objects.level("repo", ID, ""))),
    "uncommitted": Call(lambda objects: list(objects.uncommitted(_STAGING))),
    "changes": Call(lambda objects: list(objects.changes("repo", ID, "b" * 64))),
    "read": Call(lambda objects: list(objects.read("repo", ID, "key", 7))),
    "read (in pieces)": Call(lambda objects: list(objects.read("repo", ID, "key", 20 << 20))),
    "read (by API)": Call(lambda objects: list(objects.read("repo", ID, "key/", 7))),
    "save": Call(lambda objects: _save(objects, ID)),
    "read_many": Call(lambda objects: _read_many(objects, ID)),
    "write_many": Call(_write_many, changes=True),
    "write": Call(_write("key"), changes=True),
    "write (by API)": Call(_write("key/"), changes=True),
    "write (metadata)": Call(
        _write("key/", {"a": "b"}),
        changes=True,
        good=(
            (
                "POST /api/v1/repositories/repo/branches/staging/objects?",
                answer("201 Created", b'{"path": "key/", "path_type": "object"}'),
            ),
        ),
    ),
    "delete": Call(lambda objects: objects.delete("repo", "staging", ["key"]), changes=True),
}

_SIGNED = f"{HERE}/store/place?X-Amz-Signature=7f3c"
_PATH = "/api/v1/repositories/repo"
_STAT = {
    "path": "key",
    "path_type": "object",
    "size_bytes": 9 << 20,
    "physical_address": _SIGNED,
}


def _answered(line: str, body: object, status: str = "200 OK") -> tuple[str, bytes]:
    """The good answer to requests that begin like a line, with addresses of the server itself."""
    return line, placed_answer(status, json.dumps(body).encode())


_CONFIG = _answered(
    "GET /api/v1/config ",
    {
        "version_config": {"version": "1"},
        "storage_config": {
            "blockstore_type": "s3",
            "pre_sign_support": True,
            "pre_sign_multipart_upload": True,
        },
    },
)
_READ_ADDRESS = _answered(f"GET {_PATH}/refs/main/objects/stat?", _STAT)
_LOCATION = _answered(
    f"GET {_PATH}/branches/staging/staging/backing?",
    {"physical_address": "s3://bucket/place", "presigned_url": _SIGNED},
)
_UPLOAD = _answered(
    f"POST {_PATH}/branches/staging/staging/pmpu?",
    {"upload_id": "u", "physical_address": "s3://bucket/place", "presigned_urls": [_SIGNED] * 2},
    "201 Created",
)
# For a part whose address the store refused.
_PART = _answered(
    f"PUT {_PATH}/branches/staging/staging/pmpu/u/parts/",
    {"upload_id": "u", "part_number": 1, "presigned_url": _SIGNED},
)
_STORED = ("PUT /store/", answer("200 OK", b"", headers='ETag: "e"\r\n'))


def _write_presigned(size: int) -> Callable[[Any], object]:
    def write(client: PresignedClient) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(size)
            client.write(Target("repo", "staging", "key", "text/plain", {}), Path(file.name))

    return write


PRESIGNED: dict[str, Call] = {
    "check (a place)": Call(lambda client: client.check("repo", "main")),
    "check (the store)": Call(lambda client: client.check("repo", "main"), good=(_LOCATION,)),
    "can_read": Call(lambda client: client.can_read()),
    "can_write": Call(lambda client: client.can_write(1 << 30)),
    "read (an address)": Call(lambda client: list(client.read("repo", "main", "key", 7))),
    "read (addresses)": Call(lambda client: list(client.read("repo", ID, "key", 7))),
    "read (the store)": Call(
        lambda client: list(client.read("repo", "main", "key", 7)), good=(_READ_ADDRESS,)
    ),
    "read (the store, in pieces)": Call(
        lambda client: list(client.read("repo", "main", "key", 20 << 20)), good=(_READ_ADDRESS,)
    ),
    "save (an address)": Call(lambda client: _save(client, ID)),
    "save (the store)": Call(lambda client: _save(client, "main"), good=(_READ_ADDRESS,)),
    "read_many (addresses)": Call(lambda client: _read_many(client, ID)),
    "read_many (the store)": Call(lambda client: _read_many(client, "main"), good=(_READ_ADDRESS,)),
    # What is in the store alone is not on the branch: until LakeFS is told, nothing has changed.
    "write (a place)": Call(_write_presigned(1000)),
    "write (the store)": Call(_write_presigned(1000), good=(_LOCATION,)),
    "write (on the branch)": Call(_write_presigned(1000), changes=True, good=(_LOCATION, _STORED)),
    "write (parts, begun)": Call(_write_presigned(9 << 20), changes=True),
    "write (parts, the store)": Call(_write_presigned(9 << 20), good=(_UPLOAD, _PART)),
    "write (parts, completed)": Call(
        _write_presigned(9 << 20), changes=True, good=(_UPLOAD, _STORED)
    ),
}

GARBAGE: dict[str, Call] = {
    "repositories": Call(lambda garbage: garbage.repositories()),
    "branches": Call(lambda garbage: list(garbage.branches("repo"))),
    "tags": Call(lambda garbage: list(garbage.tags("repo"))),
    "create_tag": Call(lambda garbage: garbage.create_tag("repo", "name", ID), changes=True),
    "delete_branch": Call(
        lambda garbage: garbage.delete_branch("repo", "name", ID),
        changes=True,
        good=(("GET /api/v1/repositories/repo/branches/name ", _REF),),
    ),
    "delete_tag": Call(
        lambda garbage: garbage.delete_tag("repo", "name", ID),
        changes=True,
        good=(("GET /api/v1/repositories/repo/tags/name ", _REF),),
    ),
}

ATTEMPTS: dict[str, Call] = {
    "poll": Call(lambda attempts: attempts.poll("type", "token"), changes=True),
    "poll_batch": Call(lambda attempts: attempts.poll_batch("type", "token", 3), changes=True),
    "read": Call(lambda attempts: attempts.read("task")),
    "renew": Call(lambda attempts: attempts.renew(_CLAIM), changes=True),
    "complete": Call(
        lambda attempts: attempts.complete(_CLAIM, Completed({"n": 1}), ["line"]), changes=True
    ),
    "log": Call(lambda attempts: attempts.log("task", "text"), changes=True),
    "hand_back": Call(lambda attempts: attempts.hand_back(_CLAIM), changes=True),
    "has_ended_before": Call(lambda attempts: attempts.has_ended_before("workflow")),
    "assert_answers": Call(lambda attempts: attempts.assert_answers()),
    "read_version": Call(lambda attempts: attempts.read_version()),
    "find_waiting": Call(lambda attempts: attempts.find_waiting(["task"])),
}

INSPECTION: dict[str, Call] = {
    "task": Call(lambda conductor: conductor.task("task")),
    "running": Call(lambda conductor: conductor.running()),
    "log": Call(lambda conductor: conductor.log("task")),
    "workflow": Call(lambda conductor: conductor.workflow("workflow")),
    "find_workflows": Call(lambda conductor: conductor.find_workflows(10, running=True)),
    "queues": Call(lambda conductor: conductor.queues()),
}

TASKDEFS: dict[str, Call] = {
    "get": Call(lambda taskdefs: taskdefs.get("name")),
    "response_timeouts": Call(lambda taskdefs: taskdefs.response_timeouts()),
    "put (new)": Call(lambda taskdefs: taskdefs.put({"name": "n"}, exists=False), changes=True),
    "put (old)": Call(lambda taskdefs: taskdefs.put({"name": "n"}, exists=True), changes=True),
}

LISTING: dict[str, Call] = {
    "repositories": Call(lambda listing: listing.repositories(10)),
    "branches": Call(lambda listing: listing.branches("repo", 10)),
}

REPOSITORIES: dict[str, Call] = {
    "names": Call(lambda repositories: repositories.names()),
    "default_branch": Call(lambda repositories: repositories.default_branch("repo")),
    "branches": Call(lambda repositories: repositories.branches("repo")),
    "resolve": Call(lambda repositories: repositories.resolve("repo", "main")),
    "block_store": Call(lambda repositories: repositories.block_store()),
    "create": Call(
        lambda repositories: repositories.create("repo", "local://repo", "main"), changes=True
    ),
    "create_branch": Call(
        lambda repositories: repositories.create_branch("repo", "branch", "main"), changes=True
    ),
}

WORKFLOWS: dict[str, Call] = {
    "get_definition": Call(lambda workflows: workflows.get_definition("name", 1)),
    "put_definition": Call(lambda workflows: workflows.put_definition({"name": "n"}), changes=True),
    "start": Call(lambda workflows: workflows.start({"name": "n"}), changes=True),
    "find": Call(lambda workflows: workflows.find("name", "correlation")),
    "read": Call(lambda workflows: workflows.read("workflow")),
    "last_poll_ms": Call(lambda workflows: workflows.last_poll_ms("task")),
}

ADAPTERS: dict[type, tuple[Callable[[str], Any], dict[str, Call]]] = {
    LakeFSControl: (lambda url: closing(LakeFSControl(lakefs(url))), CONTROL),
    LakeFSObjects: (lambda url: closing(LakeFSObjects(lakefs(url))), OBJECTS),
    PresignedClient: (lambda url: closing(presigned(url)), PRESIGNED),
    LakeFSGarbage: (lambda url: closing(LakeFSGarbage(lakefs(url))), GARBAGE),
    ConductorAttempts: (lambda url: closing(ConductorAttempts(conductor(url), tries=2)), ATTEMPTS),
    ConductorInspection: (
        lambda url: closing(ConductorInspection(conductor(url), tries=2)),
        INSPECTION,
    ),
    LakeFSInspection: (lambda url: closing(LakeFSInspection(lakefs(url), tries=2)), LISTING),
    ConductorTaskDefs: (lambda url: closing(ConductorTaskDefs(conductor(url))), TASKDEFS),
    LakeFSRepositories: (
        lambda url: closing(LakeFSRepositories(lakefs(url), tries=2)),
        REPOSITORIES,
    ),
    ConductorWorkflows: (
        lambda url: closing(ConductorWorkflows(conductor(url), tries=2)),
        WORKFLOWS,
    ),
}
