"""What `perago doctor` finds in a healthy and in a broken set-up."""

from __future__ import annotations

import fcntl
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from pydantic import SecretStr

from perago.conductor.client import ConductorAttempts
from perago.connections import ConductorConnection, LakeFSConnection
from perago.errors import BackendDeniedError, SetupError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import FenceState
from perago.operations import doctor, rights, root_check
from perago.operations.doctor import Examination, check_objects, compare_clocks, judge_leases
from perago.operations.fence import FenceAdmin, FenceStatus
from perago.operations.findings import Finding
from perago.operations.rights import try_rights
from perago.operations.root_check import can_lock, check_root
from perago.protocol.workspace import Commit, StagedWorkspace
from perago.servers.toolchain import java
from perago.settings import Settings
from perago.wiring import spark_probe
from support.garbage_server import GarbageServer, answer
from support.presigning_lake import BRANCH, REPOSITORY, PresigningLake

# Of this machine, and not one of loopback.
ANOTHER_NAME = "0.0.0.0"  # noqa: S104  nothing listens there
HEAD = "a" * 64
JAVA = java.Java(Path("/jvm/bin/java"), 21, full=True)


def said(body: Any, *, ago: float = 0.0, status: str = "200 OK") -> bytes:
    """A good answer, by a server whose clock is behind."""
    date = formatdate(time.time() - ago, usegmt=True)
    return answer(status, json.dumps(body).encode(), headers=f"Date: {date}\r\n")


NONE = {"results": [], "pagination": {"has_more": False, "next_offset": ""}}
MISSING = answer("404 Not Found", b"<Error><Code>NoSuchBucket</Code></Error>", "application/xml")


def lakefs_answers(ago: float = 0.0) -> dict[str, bytes]:
    return {
        "GET /api/v1/user ": said({"user": {"id": "u"}}),
        "GET /api/v1/config ": said({"version_config": {"version": "1.84.0"}}, ago=ago),
        "GET /api/v1/repositories?": said(NONE, ago=ago),
        "GET /perago-check/": MISSING,
    }


def conductor_answers() -> dict[str, bytes]:
    return {
        "GET /api/tasks/queue/sizes": said({"perago": 0}),
        "GET /api/admin/config": said({"version": "3.32.3", "secret": "not shown"}),
        "GET /api/metadata/taskdefs ": said([{"name": "clean", "responseTimeoutSeconds": 60}]),
    }


class SetUp:
    """A folder and an environment of the test's own, and servers with canned answers."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, closing: ExitStack) -> None:
        self.patch, self.folder, self._closing = patch, folder, closing
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.setenv("PERAGO_WORKSPACE_ROOT", str(folder / "workspaces"))
        patch.setattr(java, "find", lambda _: JAVA)

    def serve(self, answers: dict[str, bytes]) -> str:
        server = GarbageServer(lambda: iter([answer("404 Not Found", b"")]), answers)
        return self._closing.enter_context(server).url

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self.patch.setenv(name, value)

    def set_servers(self, lakefs: str, conductor: str) -> None:
        self.set(
            LAKECTL_SERVER_ENDPOINT_URL=lakefs,
            LAKECTL_CREDENTIALS_ACCESS_KEY_ID="key",
            LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="secret",
            CONDUCTOR_SERVER_URL=conductor,
        )


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SetUp]:
    for name in ("LAKECTL_SERVER_ENDPOINT_URL", "CONDUCTOR_SERVER_URL", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as closing:
        yield SetUp(monkeypatch, tmp_path, closing)


def findings(**options: Any) -> dict[str, Finding]:
    return {item.check: item for item in Examination(**options).findings()}


def test_a_healthy_set_up_has_a_line_for_each_thing(set_up: SetUp) -> None:
    lakefs, conductor = set_up.serve(lakefs_answers()), set_up.serve(conductor_answers())
    set_up.set_servers(lakefs, conductor)
    (set_up.folder / "workspaces").mkdir(mode=0o700)
    found = findings()
    assert [item for item in found.values() if not item.ok] == []
    texts = {check: item.text for check, item in found.items()}
    assert texts.pop("configuration").startswith("settings: ")
    assert texts == {
        "LakeFS": f"{lakefs} answers, version 1.84.0",
        "LakeFS's clock": "agrees with this machine's",
        "objects": "move through LakeFS's S3 gateway: its store has no presigned addresses",
        "Conductor": f"{conductor}/api answers, version 3.32.3",
        "Conductor's clock": "agrees with this machine's",
        "dead workers": "are noticed 60 s after their last heartbeat (responseTimeoutSeconds of 1 "
        "TaskDef), and on SQL back ends of Conductor up to two minutes later",
        "Java": "Spark runs on Java 21 at /jvm/bin/java",
        "workspace root": f"{set_up.folder}/workspaces has room, and files in it can be locked",
    }


def test_plain_http_to_the_gateway_is_found(set_up: SetUp) -> None:
    lakefs = set_up.serve(lakefs_answers())
    set_up.set_servers(lakefs, set_up.serve(conductor_answers()))
    set_up.set(PERAGO_LAKEFS_S3_ENDPOINT=lakefs.replace("127.0.0.1", ANOTHER_NAME))
    found = findings()["PERAGO_LAKEFS_S3_ENDPOINT"]
    assert not found.ok
    assert found.text.startswith("plain http to another machine")
    assert found.hint == "Set PERAGO_LAKEFS_S3_ENDPOINT to an https:// address."


@pytest.mark.parametrize("asked", ["auto", "gateway"])
def test_the_way_of_objects_is_shown(set_up: SetUp, asked: str) -> None:
    storage = {"blockstore_type": "s3", "pre_sign_support": True}
    config = said({"version_config": {"version": "1.84.0"}, "storage_config": storage})
    answers = {**lakefs_answers(), "GET /api/v1/config ": config}
    set_up.set_servers(set_up.serve(answers), set_up.serve(conductor_answers()))
    set_up.set(PERAGO_TRANSFER=asked)
    found = findings()["objects"]
    assert (found.ok, found.text) == (
        True,
        "move straight to and from LakeFS's object store"
        if asked == "auto"
        else "move through LakeFS's S3 gateway: PERAGO_TRANSFER=gateway",
    )


def test_with_nothing_set_each_line_says_what_to_set(set_up: SetUp) -> None:
    def no_java(_: object) -> java.Java:
        raise SetupError("there is no Java", hint="Install one.")

    set_up.patch.setattr(java, "find", no_java)
    found = findings()
    wrong = {check for check, item in found.items() if not item.ok}
    assert wrong == {"LakeFS", "Conductor", "Java"}
    assert "LAKECTL_SERVER_ENDPOINT_URL" in found["LakeFS"].text
    assert "CONDUCTOR_SERVER_URL" in found["Conductor"].text
    assert all(found[check].hint for check in wrong)


def test_settings_that_cannot_be_read_are_all_named(set_up: SetUp) -> None:
    set_up.set(PERAGO_TRANSFER_THREADS="many", CONDUCTOR_SERVER_URL="nowhere")
    listed = list(Examination().findings())
    wrong = [item.text for item in listed if not item.ok]
    assert [item.check for item in listed] == ["configuration", "configuration", "Java"]
    assert any("PERAGO_TRANSFER_THREADS" in text for text in wrong)
    assert any("CONDUCTOR_SERVER_URL" in text for text in wrong)


def test_each_server_s_address_set_to_the_other_s_is_found(set_up: SetUp) -> None:
    lakefs, conductor = set_up.serve(lakefs_answers()), set_up.serve(conductor_answers())
    set_up.set_servers(conductor, lakefs)
    found = findings()
    assert not found["LakeFS"].ok
    assert f"LAKECTL_SERVER_ENDPOINT_URL={conductor}" in found["LakeFS"].text
    assert not found["Conductor"].ok
    assert f"CONDUCTOR_SERVER_URL={lakefs}/api" in found["Conductor"].text


def test_a_task_that_is_not_registered_is_found(set_up: SetUp) -> None:
    missing = said(
        {"status": 404, "message": "no such TaskDef", "retryable": False}, status="404 Not Found"
    )
    conductor = set_up.serve({**conductor_answers(), "GET /api/metadata/taskdefs/": missing})
    set_up.set_servers(set_up.serve(lakefs_answers()), conductor)
    set_up.patch.syspath_prepend(Path(__file__).parents[2] / "support" / "task_modules")
    listed = findings(targets=["bodies:w_plain"])
    found = listed["TaskDef 'w_plain'"]
    # Those of other tasks are not this worker's.
    assert "dead workers" not in listed
    assert not found.ok
    assert found.text == "task 'w_plain' is not registered in Conductor"
    assert found.hint == "Run `perago register bodies:w_plain`."


def test_how_fast_a_dead_worker_is_noticed_is_said_with_the_slowest_task() -> None:
    [found] = judge_leases({"clean": 60.0, "train": 3600.0})
    assert (found.ok, found.text) == (
        True,
        "are noticed 60 to 3600 s after their last heartbeat (responseTimeoutSeconds of 2 "
        "TaskDefs, the longest of 'train'), and on SQL back ends of Conductor up to two minutes "
        "later",
    )


def test_a_task_whose_dead_workers_are_never_noticed_is_found() -> None:
    [found] = judge_leases({"clean": 0.0})
    assert (found.ok, found.text, found.hint) == (
        False,
        "Conductor never notices one that ran clean: responseTimeoutSeconds is 0",
        "Set TimeoutPolicy(response_seconds=…), then run `perago register MODULE`.",
    )


def spark_findings(set_up: SetUp, problems: list[str], **options: Any) -> list[Finding]:
    """What is said of a Spark that has these problems."""
    asked = []

    def probe(remote: str, *, with_job: bool) -> list[str]:
        asked.append((remote, with_job))
        return problems

    set_up.patch.setattr(spark_probe, "probe", probe)
    set_up.set_servers(set_up.serve(lakefs_answers()), set_up.serve(conductor_answers()))
    found = [item for item in Examination(**options).findings() if item.check == "Spark"]
    assert asked == [("sc://spark:15002", options.get("with_job", False))]
    return found


def test_an_external_spark_is_probed(set_up: SetUp) -> None:
    set_up.set(SPARK_REMOTE="sc://spark:15002")
    [right] = spark_findings(set_up, [])
    assert right.text == "SPARK_REMOTE reads LakeFS through s3a://"
    wrong = spark_findings(set_up, ["one thing", "another"])
    assert [item.text for item in wrong] == ["SPARK_REMOTE: one thing", "SPARK_REMOTE: another"]
    assert all("docs/spark.md" in item.hint for item in wrong)


class Runtime:
    """A managed Spark that starts, or does not."""

    def __init__(self, remote: str | None) -> None:
        self._remote = remote
        self.closed = False

    def remote(self, _: Any) -> str | None:
        return self._remote

    def close(self) -> None:
        self.closed = True


def test_managed_spark_is_started_for_a_job_and_stopped(set_up: SetUp) -> None:
    runtime = Runtime("sc://spark:15002")
    set_up.patch.setattr(doctor, "open_runtime", lambda _: runtime)
    [found] = spark_findings(set_up, [], with_job=True)
    assert found.text == "managed Spark reads LakeFS through s3a://, and runs Python functions"
    assert runtime.closed


def test_a_master_of_managed_spark_is_looked_for(set_up: SetUp) -> None:
    set_up.set_servers(set_up.serve(lakefs_answers()), set_up.serve(conductor_answers()))
    assert "Spark master" not in findings()
    set_up.set(PERAGO_SPARK_MASTER="yarn")
    set_up.patch.delenv("HADOOP_CONF_DIR", raising=False)
    set_up.patch.delenv("YARN_CONF_DIR", raising=False)
    found = findings()["Spark master"]
    assert not found.ok
    assert "HADOOP_CONF_DIR is not set" in found.text
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        set_up.set(PERAGO_SPARK_MASTER=master)
        found = findings()["Spark master"]
    assert (found.ok, found.text) == (True, f"{master} can be reached")


def test_managed_spark_that_does_not_start_is_found(set_up: SetUp) -> None:
    set_up.patch.setattr(doctor, "open_runtime", lambda _: Runtime(None))
    set_up.set_servers(set_up.serve(lakefs_answers()), set_up.serve(conductor_answers()))
    assert not findings(with_job=True)["Spark"].ok


@pytest.mark.parametrize(
    ("state", "mode", "ok"),
    [
        (FenceState.INSTALLED, "hard", True),
        (FenceState.MISSING, "soft", True),
        (FenceState.MISSING, "hard", False),
        (FenceState.OUTDATED, "hard", False),
    ],
)
def test_a_missing_fence_is_wrong_where_the_worker_wants_it(
    set_up: SetUp, state: FenceState, mode: str, *, ok: bool
) -> None:
    listed = [{"id": name, "default_branch": "main"} for name in ("songs-1", "other")]
    pages = {"results": listed, "pagination": {"has_more": False, "next_offset": ""}}
    answers = {**lakefs_answers(), "GET /api/v1/repositories?": said(pages)}
    set_up.set_servers(set_up.serve(answers), set_up.serve(conductor_answers()))
    set_up.set(PERAGO_PUBLISH_FENCE=mode, PERAGO_ALLOWED_WORKSPACES="songs-*/main")
    status = FenceStatus("songs-1", "main", HEAD, state)
    set_up.patch.setattr(FenceAdmin, "status", lambda *_: status)
    fences = {check: item for check, item in findings().items() if "fence" in check}
    assert list(fences) == ["hard fence of 'songs-1'"]
    found = fences["hard fence of 'songs-1'"]
    assert found.ok is ok
    assert ok or found.hint == "Run `perago fence install songs-1`."


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (-0.9, "agrees with this machine's"),
        (4.0, "agrees with this machine's"),
        (90.0, "is 90 s ahead of this machine's"),
        (-90.0, "is 90 s behind this machine's"),
    ],
)
def test_clocks_may_differ_by_some_seconds(difference: float, text: str) -> None:
    [found] = compare_clocks("LakeFS", difference)
    assert (found.check, found.text) == ("LakeFS's clock", text)
    assert found.ok == ("agrees" in text)
    assert list(compare_clocks("LakeFS", None)) == []


def test_the_clock_of_a_server_is_read_from_its_answers(set_up: SetUp) -> None:
    url = set_up.serve({"GET /api/tasks/queue/sizes": said({"perago": 0}, ago=3600.0)})
    conductor = ConductorAttempts(ConductorConnection(url))
    assert conductor.clock_difference is None
    conductor.assert_answers()
    assert conductor.clock_difference == pytest.approx(-3600.0, abs=5.0)
    conductor.close()


def root_of(folder: Path, **changes: Any) -> list[Finding]:
    return list(check_root(Settings(workspace_root=folder, **changes)))


def test_a_root_that_is_not_there_yet_will_be_made(tmp_path: Path) -> None:
    [found] = root_of(tmp_path / "a" / "b")
    assert found.ok
    assert found.text.endswith("a/b will be made")


def test_a_root_that_others_can_write_to_or_that_has_no_room_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    [mode] = root_of(tmp_path)
    assert mode.hint == f"Run: chmod go-w {tmp_path}"
    tmp_path.chmod(0o700)
    [space] = root_of(tmp_path, min_free_bytes=1 << 62)
    assert "less than PERAGO_MIN_FREE_BYTES" in space.text
    file = tmp_path / "file"
    file.touch()
    [no_folder] = root_of(file)
    assert no_folder.text == f"{file} cannot be written to"


def test_a_disk_on_which_locks_lock_nothing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    assert can_lock(tmp_path)
    assert list(tmp_path.iterdir()) == []
    without = SimpleNamespace(flock=lambda *_: None, LOCK_EX=fcntl.LOCK_EX, LOCK_NB=fcntl.LOCK_NB)
    monkeypatch.setattr(root_check, "fcntl", without)
    [found] = root_of(tmp_path)
    assert "cannot be locked" in found.text


class Lake:
    """A LakeFS in which one method is denied; it keeps what was made and not removed."""

    def __init__(self, denied: str = "") -> None:
        self.denied = denied
        self.there: set[str] = set()

    def _do(self, method: str) -> None:
        if method == self.denied:
            raise BackendDeniedError(f"403 for {method}")

    def default_branch(self, _: str) -> str:
        self._do("default_branch")
        return "main"

    def get_head(self, *_: str) -> Commit:
        return Commit(HEAD)

    def create_branch(self, staging: Any, _: str) -> None:
        self._do("create_branch")
        self.there.add(staging.branch)

    def delete_branch(self, staging: Any) -> None:
        self._do("delete_branch")
        self.there.discard(staging.branch)

    def write_small(self, *_: Any) -> None:
        self._do("write_small")

    def commit(self, staging: Any, *_: Any) -> StagedWorkspace:
        self._do("commit")
        return StagedWorkspace(staging.repository, staging.branch, HEAD)

    def merge(self, *_: Any, **__: Any) -> None:
        self._do("merge")

    def relocate(self, *_: Any, **__: Any) -> None:
        self._do("relocate")

    def tag(self, _: str, name: str, __: str) -> None:
        self._do("tag")
        self.there.add(name)

    def delete_tag(self, _: str, name: str, __: str) -> None:
        self._do("delete_tag")
        self.there.discard(name)

    def has_action_runs(self, *_: str) -> bool:
        self._do("has_action_runs")
        return False


ALL = [
    "read branches and commits",
    "create branches",
    "write objects",
    "commit",
    "merge",
    "relocate branches",
    "create tags",
    "read the runs of hooks",
    "delete branches and tags",
]


def tried(lake: Any) -> list[rights.Right]:
    return list(try_rights(lake, lake, "repository"))


def test_all_rights_are_tried_and_nothing_is_left() -> None:
    lake = Lake()
    assert [(right.name, right.error) for right in tried(lake)] == [(name, None) for name in ALL]
    assert lake.there == set()


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        ("default_branch", "read branches and commits"),
        ("create_branch", "create branches"),
        ("write_small", "write objects"),
        ("commit", "commit"),
        ("merge", "merge"),
        ("relocate", "relocate branches"),
        ("tag", "create tags"),
        ("has_action_runs", "read the runs of hooks"),
        ("delete_branch", "delete branches and tags"),
        ("delete_tag", "delete branches and tags"),
    ],
)
def test_a_missing_right_is_named_and_what_was_made_is_removed(denied: str, missing: str) -> None:
    lake = Lake(denied)
    found = tried(lake)
    [wrong] = [right for right in found if right.error is not None]
    assert wrong.name == missing
    assert "fs:" in wrong.hint or "ci:" in wrong.hint
    # What comes after it was not tried; what was made before it is removed.
    names = [right.name for right in found]
    upto = ALL[: ALL.index(missing) + 1]
    assert [name for name in names if name != ALL[-1]] == [name for name in upto if name != ALL[-1]]
    if not denied.startswith("delete"):
        assert lake.there == set()


@pytest.mark.parametrize(("host", "is_ok"), [(ANOTHER_NAME, False), ("127.0.0.1", True)])
def test_plain_http_to_the_object_store_is_found(host: str, *, is_ok: bool) -> None:
    with PresigningLake() as lake:
        lake.store_url = lake.url.replace("127.0.0.1", host)
        # As a store does with an address for writing.
        lake.refuse_all()
        connection = LakeFSConnection(lake.url, "key", SecretStr("secret"), retry_seconds=0.1)
        control = create_autospec(LakeFSControl, instance=True)
        control.default_branch.return_value = BRANCH
        first, *others = check_objects(connection, control, REPOSITORY)
    assert first.ok
    assert [finding.ok for finding in others] == [False] * (not is_ok)
    for finding in others:
        assert finding.text == (
            f"{lake.store_url}: plain http to another machine shows credentials and data to the "
            "network; use https"
        )
        assert "blockstore.s3.pre_signed_endpoint" in str(finding.hint)
