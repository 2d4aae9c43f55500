"""A worker that cannot run says at its start what is wrong: every server, soon, by its setting."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from perago.connections import ConductorConnection, LakeFSConnection, plain_http_warning
from perago.errors import BackendUnavailableError, ConfigurationError
from perago.operations import registration, server_checks
from perago.servers.spark import ConnectSettings
from perago.servers.toolchain import java, spark_jars
from perago.settings import Settings
from perago.spark.settings import ExternalSpark, ManagedSpark
from perago.wiring import spark_probe
from perago.worker import preflight as module
from perago.worker.preflight import Findings, preflight, try_cluster
from support.definitions import define, file_body
from support.garbage_server import GARBAGE, GarbageServer, answer

DEFINITION = define(file_body)
SPARK = ExternalSpark(SecretStr("sc://spark.example.com"))
USER = answer("200 OK", b'{"user": {"id": "u"}}')
MISSING = answer("404 Not Found", b"<Error><Code>NoSuchBucket</Code></Error>", "application/xml")
LAKEFS = {"GET /api/v1/user ": USER, "GET /perago-check/": MISSING}
CONDUCTOR = {
    "GET /api/metadata/": answer(
        "404 Not Found",
        json.dumps({"status": 404, "message": "no such TaskDef", "retryable": False}).encode(),
    )
}


def settings(lakefs: str, conductor: str, **others: Any) -> Settings:
    return Settings(
        lakefs_endpoint=lakefs,
        lakefs_access_key_id="key",
        lakefs_secret_access_key="secret",
        conductor_server_url=conductor,
        **others,
    )


def problems(settings: Settings, **options: Any) -> str:
    """What a worker says, after less time than is allowed."""
    began = time.monotonic()
    with pytest.raises((BackendUnavailableError, ConfigurationError)) as caught:
        preflight([DEFINITION], settings, register=False, **options)
    assert time.monotonic() - began < 30
    return str(caught.value)


@pytest.fixture
def closed() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def lakefs() -> Iterator[str]:
    with GarbageServer(lambda: iter([b""]), LAKEFS) as server:
        yield server.url


@pytest.fixture
def conductor() -> Iterator[str]:
    with GarbageServer(lambda: iter([b""]), CONDUCTOR) as server:
        yield server.url


def test_servers_that_are_down_are_all_named_with_their_settings(closed: str) -> None:
    said = problems(settings(closed, closed))
    assert f"LAKECTL_SERVER_ENDPOINT_URL={closed}: LakeFS did not answer" in said
    assert f"CONDUCTOR_SERVER_URL={closed}/api: Conductor did not answer" in said


@pytest.mark.parametrize("kind", ["200 with a page", "404 with a page", "a redirect", "TLS"])
def test_other_servers_than_those_that_are_meant_are_all_named(kind: str) -> None:
    with GarbageServer(GARBAGE[kind]) as server:
        said = problems(settings(server.url, server.url))
    assert "LAKECTL_SERVER_ENDPOINT_URL=" in said
    assert "CONDUCTOR_SERVER_URL=" in said


def test_servers_that_do_not_answer_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_checks, "_REQUEST_SECONDS", 0.5)
    with GarbageServer(GARBAGE["dripping headers"]) as server:
        began = time.monotonic()
        said = problems(settings(server.url, server.url))
        # A connect timeout of 5 seconds each is part of their bound.
        assert time.monotonic() - began < 10
    assert "LAKECTL_SERVER_ENDPOINT_URL=" in said
    assert "CONDUCTOR_SERVER_URL=" in said


def test_a_check_that_does_not_end_is_named_in_time(
    lakefs: str, conductor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 2.0)
    monkeypatch.setattr(module, "_check_spark", lambda spark, findings: time.sleep(20))
    began = time.monotonic()
    said = problems(settings(lakefs, conductor), spark=SPARK)
    assert time.monotonic() - began < 10
    assert "SPARK_REMOTE: Spark could not be checked within 2 s" in said
    assert "LAKECTL" not in said


def test_the_gateway_is_checked_at_its_own_address(
    lakefs: str, conductor: str, closed: str
) -> None:
    said = problems(settings(lakefs, conductor, lakefs_s3_endpoint=closed))
    assert f"PERAGO_LAKEFS_S3_ENDPOINT={closed}: LakeFS could not" in said
    assert "LAKECTL_SERVER_ENDPOINT_URL" not in said


def cannot_reach_lakefs(spark: object, findings: Findings) -> None:
    findings.settings.append("SPARK_REMOTE: reading through s3a:// fails: it cannot reach it")


def test_spark_is_not_blamed_for_lakefs(
    lakefs: str, conductor: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_check_spark", cannot_reach_lakefs)
    said = problems(settings(closed, conductor), spark=SPARK)
    assert "LAKECTL_SERVER_ENDPOINT_URL=" in said
    assert "SPARK_REMOTE" not in said
    assert "SPARK_REMOTE: reading" in problems(settings(lakefs, conductor), spark=SPARK)


def test_servers_that_are_right_leave_only_what_they_say(lakefs: str, conductor: str) -> None:
    said = problems(settings(lakefs, conductor))
    assert said == "task 'a_task' is not registered in Conductor"


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://lakefs.example.com", True),
        ("http://10.0.0.7:8000", True),
        ("https://lakefs.example.com", False),
        ("http://localhost:8000", False),
        ("http://127.0.0.7:8000", False),
        ("http://[::1]:8000", False),
    ],
)
def test_plain_http_to_another_machine_is_a_warning(url: str, *, warns: bool) -> None:
    assert (plain_http_warning(url) is not None) is warns
    findings = Findings()
    findings.warn_of_plain_http(ConductorConnection(url))
    assert [warning.startswith(f"CONDUCTOR_SERVER_URL={url}") for warning in findings.warnings] == (
        [True] if warns else []
    )


def test_a_master_that_is_wrong_is_named_with_its_setting(
    lakefs: str, conductor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find", lambda _: None)
    monkeypatch.setattr(spark_jars, "find_or_fetch", lambda _: None)
    monkeypatch.setattr(registration, "register", lambda *_: None)
    connection = LakeFSConnection(lakefs, "key", SecretStr("secret"))
    managed = ManagedSpark(ConnectSettings("test", connection, "localish"))
    with pytest.raises(ConfigurationError) as caught:
        preflight([DEFINITION], settings(lakefs, conductor), register=True, spark=managed)
    assert str(caught.value) == (
        "PERAGO_SPARK_MASTER=localish: 'localish' is no master that Spark knows"
    )


class Cluster:
    """Managed Spark on a cluster, which starts or does not."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.users: list[str] = []

    def remote(self, give_up: object, user: str = "") -> str:
        self.users.append(user)
        if self._error is not None:
            raise self._error
        return "sc://localhost:1"

    def leave(self, user: str) -> None:
        self.users.remove(user)


def probe_finds(monkeypatch: pytest.MonkeyPatch, found: list[str] | Exception) -> None:
    def probe(remote: str, *, with_job: bool) -> list[str]:
        assert with_job
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(spark_probe, "probe", probe)


def test_a_cluster_on_which_a_function_runs_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Cluster()
    probe_finds(monkeypatch, [])
    assert try_cluster(cluster) == []
    assert cluster.users == []


def test_a_cluster_that_is_wrong_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Cluster()
    probe_finds(monkeypatch, ["its executors run Python 3.9", "no S3A"])
    with pytest.raises(ConfigurationError) as caught:
        try_cluster(cluster)
    assert str(caught.value).splitlines() == [
        "Spark's cluster: its executors run Python 3.9",
        "Spark's cluster: no S3A",
    ]
    assert cluster.users == []


def test_a_cluster_without_room_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Cluster()
    probe_finds(monkeypatch, BackendUnavailableError("did not answer within 180 s"))
    [warning] = try_cluster(cluster)
    assert "no function could be tried on Spark's cluster: did not answer" in warning


def test_a_cluster_on_which_spark_does_not_start_is_an_error() -> None:
    cluster: Any = Cluster(BackendUnavailableError("Spark could not be started: no such queue"))
    with pytest.raises(BackendUnavailableError, match="no such queue"):
        try_cluster(cluster)
    assert cluster.users == []
