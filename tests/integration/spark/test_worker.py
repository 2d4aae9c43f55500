"""``perago start`` with Spark tasks: one lazy server per worker, and checks of external ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.servers import loopback
from perago.servers.spark import ConnectSettings
from support.connect import Serve
from support.workers import Worker, WorkerSite

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(400)]

LOCAL = "local[2]"


def spark_pids(worker: Worker) -> list[int]:
    return [int(line["pid"]) for line in worker.lines() if line.get("action") == "spark_started"]


@pytest.mark.slow
def test_the_server_starts_with_the_first_attempt_outlives_a_crash_and_ends_with_the_worker(
    spark_site: WorkerSite,
) -> None:
    worker = spark_site.start(PERAGO_SPARK_MASTER=LOCAL)
    assert spark_pids(worker) == []
    first = spark_site.workflow("s_copy", do="die", signs=str(spark_site.signs))
    tasks = spark_site.finish(first, 240)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    [pid] = spark_pids(worker)
    assert psutil.pid_exists(pid)
    assert worker.stop() == 0
    assert not psutil.pid_exists(pid)
    spark_site.assert_nothing_left()


def test_the_resolved_settings_are_logged_once_without_secrets(spark_site: WorkerSite) -> None:
    worker = spark_site.start(
        PERAGO_SPARK_MASTER=LOCAL, PERAGO_SPARK_CONF_spark__hadoop__x__password="hidden-word"
    )
    [line] = [line for line in worker.lines() if line.get("action") == "spark_resolved"]
    assert line["spark.master"] == "local[2]"
    assert line["spark.hadoop.x.password"] == "********"
    assert "hidden-word" not in worker.log_text()
    assert worker.stop() == 0


def start_with(site: WorkerSite, remote: str) -> subprocess.CompletedProcess[str]:
    """``perago start`` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "perago", "start", *site.targets, "--register"],
        cwd=site.home,
        env={**site.environment(), "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_an_external_server_that_lacks_settings_is_refused_by_their_names(
    spark_site: WorkerSite, serve: Serve, connection: LakeFSConnection
) -> None:
    broken = {
        "spark.hadoop.fs.s3a.path.style.access": "false",
        "spark.hadoop.fs.s3a.committer.name": "file",
    }
    server = serve(ConnectSettings("broken", connection, "local[1]", broken))
    done = start_with(spark_site, server.remote)
    server.stop()
    assert done.returncode == 2, done.stderr
    for name in broken:
        assert f"SPARK_REMOTE: {name} must be" in done.stderr
    assert "token=" not in done.stderr


@pytest.mark.slow
def test_an_external_server_with_wrong_credentials_is_refused(
    spark_site: WorkerSite, serve: Serve, connection: LakeFSConnection
) -> None:
    wrong = replace(connection, secret_access_key=SecretStr("not-the-secret"))
    server = serve(ConnectSettings("wrong", wrong, "local[1]"))
    done = start_with(spark_site, server.remote)
    server.stop()
    assert done.returncode == 2, done.stderr
    assert "LakeFS refused the credentials of fs.s3a" in done.stderr


def test_an_external_server_that_is_not_there_is_a_server_s_error(spark_site: WorkerSite) -> None:
    port = loopback.choose(["nobody"], {})["nobody"]
    done = start_with(spark_site, f"sc://localhost:{port}")
    assert done.returncode == 3, done.stderr
    assert f"localhost:{port}: Connection refused" in done.stderr
