"""The Connect server that a worker keeps: started once, closed to others, ended with its owner.

Its sessions share it: none waits for, fills up or ends what belongs to the others.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.connect.session import SparkSession

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError
from perago.servers.spark import SMALL_JOBS, ConnectSettings
from perago.spark.runtime import ManagedRuntime
from perago.spark.session import (
    POOL_SETTING,
    SHARES_MODULES,
    close_session,
    end_session,
    open_session,
)
from support.waiting import joined, until

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def settings(connection: LakeFSConnection) -> ConnectSettings:
    conf = {**SMALL_JOBS, SHARES_MODULES: "true", "spark.driver.maxResultSize": "16m"}
    return ConnectSettings("test", connection, "local[2]", conf)


@pytest.fixture(scope="module")
def runtime(settings: ConnectSettings) -> Iterator[ManagedRuntime]:
    running = ManagedRuntime(settings)
    yield running
    running.close()


def never() -> bool:
    return False


def java_children(pid: int | None = None) -> list[psutil.Process]:
    found = psutil.Process(pid).children(recursive=True)
    return [child for child in found if child.is_running() and "java" in child.name()]


def server_of(remote: str) -> psutil.Process:
    port = int(remote.split("/;")[0].rpartition(":")[2])
    [server] = [
        child
        for child in java_children()
        if any(at.laddr.port == port for at in child.net_connections())
    ]
    return server


def test_the_first_of_many_that_ask_starts_it_and_all_get_the_same(runtime: ManagedRuntime) -> None:
    before = set(java_children())  # the session's own servers
    answers: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: answers.append(runtime.remote(never))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    assert len(answers) == 4
    [remote] = set(answers)
    assert remote is not None
    assert len(set(java_children()) - before) == 1


def test_it_listens_on_loopback_only_and_shows_no_secret(
    runtime: ManagedRuntime, settings: ConnectSettings
) -> None:
    remote = runtime.remote(never)
    assert remote is not None
    server = server_of(remote)
    listening = [at for at in server.net_connections() if at.status == psutil.CONN_LISTEN]
    hosts = {at.laddr.ip.removeprefix("::ffff:") for at in listening}
    assert hosts == {"127.0.0.1"}
    token = remote.rpartition("token=")[2]
    shown = "\0".join([*server.cmdline(), *(f"{k}={v}" for k, v in server.environ().items())])
    assert token not in shown
    assert settings.lakefs.secret_access_key.get_secret_value() not in shown
    [properties] = Path(server.cwd()).glob("spark.properties")
    assert token in properties.read_text()
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600


def test_a_client_without_the_token_is_refused(runtime: ManagedRuntime) -> None:
    remote = runtime.remote(never)
    assert remote is not None
    stranger = remote.rpartition("token=")[0] + "token=guessed"
    with pytest.raises(SparkConnectException, match=r"UNAUTHENTICATED|Invalid authentication"):
        open_session(stranger, uuid.uuid4().hex)


CLIENT = """
import sys, time
from pathlib import Path
from perago.spark.session import open_session
remote, execution, trace = sys.stdin.read().split()
session = open_session(remote, execution)
def endless(batches):
    for batch in batches:
        for _ in range(3000):
            with Path(trace).open("a") as file:
                file.write("x")
            time.sleep(0.1)
        yield batch
session.range(1).mapInArrow(endless, "id long").collect()
"""


@pytest.mark.only_proof("a real Spark server interrupts the work of a client that was killed")
def test_the_work_of_a_killed_client_is_interrupted_and_its_session_stays_closed(
    runtime: ManagedRuntime, tmp_path: Path
) -> None:
    remote, execution, trace = runtime.remote(never), uuid.uuid4().hex, tmp_path / "trace"
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE)
    assert client.stdin is not None
    with client.stdin as line:
        line.write(f"{remote} {execution} {trace}".encode())
    try:
        until(trace.exists, "the job to run", 120)
    finally:
        client.kill()
        client.wait(20)
    grown = trace.stat().st_size
    until(lambda: trace.stat().st_size > grown, "the job to outlive its client")
    runtime.interrupt(execution)

    def rests() -> bool:
        size = trace.stat().st_size
        threading.Event().wait(2)
        return trace.stat().st_size == size

    until(rests, "the job to end")
    assert trace.stat().st_size < 3000
    assert remote is not None
    with pytest.raises(SparkConnectException, match="SESSION_CLOSED"):
        open_session(remote, execution)


def test_interrupting_what_never_began_does_nothing(runtime: ManagedRuntime) -> None:
    runtime.interrupt(uuid.uuid4().hex)
    remote = runtime.remote(never)
    assert remote is not None
    session = open_session(remote, uuid.uuid4().hex)
    assert session.range(3).count() == 3
    close_session(session)


@contextmanager
def session_on(runtime: ManagedRuntime, pool: str = "") -> Iterator[Any]:
    remote = runtime.remote(never)
    assert remote is not None
    session = open_session(remote, uuid.uuid4().hex)
    if pool:
        session.conf.set(POOL_SETTING, pool)
    try:
        yield session
    finally:
        end_session(session)


def test_what_a_session_cached_is_freed_with_it(runtime: ManagedRuntime) -> None:
    with session_on(runtime) as first:
        # What a body gets that asks pyspark for the session, not its workspace.
        assert SparkSession.active() is first
        first.range(5000).cache().count()
        first.range(7000).createOrReplaceTempView("seven")
        first.sql("CACHE TABLE seven")
        with session_on(runtime) as second:
            # Spark finds cached data by its plan: a session sees what another one has cached.
            assert second.range(5000).is_cached
            assert second.range(7000).is_cached
    with session_on(runtime) as third:
        assert not third.range(5000).is_cached
        assert not third.range(7000).is_cached


@pytest.mark.slow
def test_a_killed_client_s_cached_data_is_freed_when_nobody_else_uses_the_server(
    runtime: ManagedRuntime,
) -> None:
    remote = runtime.remote(never)
    assert remote is not None
    execution = uuid.uuid4().hex
    lost = open_session(remote, execution)
    lost.range(6000).cache().count()
    runtime.interrupt(execution)  # another user (the anonymous one) has the server
    with session_on(runtime) as other:
        assert other.range(6000).is_cached
    runtime.leave("")
    runtime.interrupt(execution)
    with session_on(runtime) as other:
        assert not other.range(6000).is_cached
    lost.client.close()


@pytest.mark.slow
def test_a_short_job_does_not_wait_for_a_long_one(runtime: ManagedRuntime) -> None:
    def slow(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.4)
            yield batch

    with session_on(runtime, "long") as long, session_on(runtime, "short") as short:
        short.range(1).mapInArrow(lambda batches: batches, "id long").collect()  # warm
        frame = long.range(0, 16, 1, 16).mapInArrow(slow, "id long")
        running = threading.Thread(target=frame.collect)
        running.start()
        time.sleep(1.0)
        assert short.range(0, 4, 1, 4).selectExpr("sum(id)").collect()[0][0] == 6
        # Sixteen tasks of 0.4 s on two cores: with FIFO the short job would have waited for them.
        assert running.is_alive()
        joined(running)


def test_a_result_that_is_too_large_fails_its_query_and_not_the_server(
    runtime: ManagedRuntime,
) -> None:
    remote = runtime.remote(never)
    with session_on(runtime) as session:
        with pytest.raises(SparkConnectException, match="maxResultSize"):
            session.range(0, 4_000_000, 1, 8).toPandas()
        assert session.range(3).count() == 3
    assert runtime.remote(never) == remote


def test_a_function_of_another_version_of_python_is_refused_clearly(
    runtime: ManagedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a client of another version would send.
    monkeypatch.setattr("pyspark.sql.connect.udf.sys", SimpleNamespace(version_info=(3, 2)))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    with session_on(runtime) as session, pytest.raises(ConfigurationError) as caught:
        session.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    wanted = f"Spark's executors run Python {here}, and this worker runs Python 3.2"
    assert str(caught.value) == wanted


@pytest.mark.slow
def test_a_killed_server_is_started_again(runtime: ManagedRuntime) -> None:
    first = runtime.remote(never)
    assert first is not None
    server = server_of(first)
    server.kill()
    second = until(lambda: (found := runtime.remote(never)) != first and found, "a new server", 180)
    session = open_session(second, uuid.uuid4().hex)
    assert session.range(3).count() == 3
    close_session(session)
    assert server_of(second).pid != server.pid


def test_closing_ends_it_and_removes_its_folder(runtime: ManagedRuntime) -> None:
    remote = runtime.remote(never)
    assert remote is not None
    server = server_of(remote)
    folder = Path(server.cwd())
    runtime.close()
    assert not server.is_running()
    assert not folder.exists()


OWNER = """
import sys, json, time
from pydantic import SecretStr
from perago.connections import LakeFSConnection
from perago.servers.spark import SMALL_JOBS, ConnectSettings
from perago.spark.runtime import ManagedRuntime
endpoint, key, secret = json.loads(sys.stdin.readline())
lakefs = LakeFSConnection(endpoint, key, SecretStr(secret))
ManagedRuntime(ConnectSettings("test", lakefs, "local[1]", SMALL_JOBS)).remote(lambda: False)
print("up", flush=True)
time.sleep(300)
"""


@pytest.mark.slow
def test_it_ends_when_its_owner_is_killed(settings: ConnectSettings) -> None:
    lakefs = settings.lakefs
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin as line, owner.stdout as answer:
        line.write(f'["{lakefs.endpoint}", "{lakefs.access_key_id}", "x"]\n')
        line.flush()
        until(lambda: "up" in answer.readline(), "the server to start", 180)
        [server] = java_children(owner.pid)
        folder = Path(server.cwd())
        os.kill(owner.pid, signal.SIGKILL)
    owner.wait(20)
    until(lambda: not server.is_running(), "the server to end", 30)
    until(lambda: not folder.exists(), "its folder to go", 30)
