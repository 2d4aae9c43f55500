"""``perago start`` with Spark tasks: one lazy server per worker, and checks of external ones."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.servers import loopback
from perago.servers.spark import ConnectSettings
from support.cluster import StandaloneCluster
from support.connect import Serve
from support.waiting import until
from support.workers import Worker, WorkerSite

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(400)]

LOCAL = "local[2]"


def spark_pids(worker: Worker) -> list[int]:
    return [int(line["pid"]) for line in worker.lines() if line.get("action") == "spark_started"]


def jobs_of(ui: str) -> list[dict[str, Any]]:
    """What Spark's UI shows of all jobs so far."""

    def get(path: str) -> Any:
        address = f"{ui}/api/v1/applications{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  http
            return json.load(answer)

    [application] = get("")
    jobs: list[dict[str, Any]] = get(f"/{application['id']}/jobs")
    return jobs


def assert_labelled(jobs: list[dict[str, Any]], workflow: str, attempts: list[str]) -> None:
    """Every job of a query says whose it is and of which phase."""
    # Spark looks for the schema of files before it reads the settings of their session.
    queries = [job for job in jobs if "jobGroup" in job]
    assert {job["jobGroup"] for job in queries} == {f"s_copy {attempt}" for attempt in attempts}
    for job in queries:
        assert job["description"].startswith("s_copy: ")
        assert workflow in job["description"]
        tags = " ".join(job["jobTags"])
        assert f"perago-workflow-{workflow}" in tags
        assert "perago-task-s_copy" in tags
    phases = {job["description"].split()[1] for job in queries}
    assert phases == {"body", "post_guardrails"}


@pytest.mark.slow
def test_the_server_starts_with_the_first_attempt_outlives_a_crash_and_ends_with_the_worker(
    spark_site: WorkerSite,
) -> None:
    events = spark_site.folder / "events"
    worker = spark_site.start(
        PERAGO_SPARK_MASTER=LOCAL,
        PERAGO_SPARK_UI="127.0.0.1:0",
        PERAGO_SPARK_EVENT_LOG=str(events),
    )
    assert spark_pids(worker) == []
    first = spark_site.workflow("s_copy", do="die", signs=str(spark_site.signs))
    tasks = spark_site.finish(first, 240)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    [pid] = spark_pids(worker)
    assert psutil.pid_exists(pid)
    [started] = [line for line in worker.lines() if line.get("action") == "spark_started"]
    assert_labelled(jobs_of(started["ui"]), first, [task["taskId"] for task in tasks])
    listening = [at for at in psutil.Process(pid).net_connections() if at.status == "LISTEN"]
    assert {at.laddr.ip.removeprefix("::ffff:") for at in listening} == {"127.0.0.1"}
    assert worker.stop() == 0
    assert not psutil.pid_exists(pid)
    # What an operator reads afterwards.
    assert "SparkContext" in Path(started["log"]).read_text()
    assert list(events.iterdir())
    spark_site.assert_nothing_left()


@pytest.mark.slow
def test_the_death_of_the_server_ends_its_attempts_at_once_and_they_are_retried(
    spark_site: WorkerSite,
) -> None:
    worker = spark_site.start(PERAGO_SPARK_MASTER=LOCAL)
    workflow = spark_site.workflow("s_copy", do="wait", signs=str(spark_site.signs))
    spark_site.await_body()
    [pid] = spark_pids(worker)
    killed = time.monotonic()
    psutil.Process(pid).kill()
    until(lambda: worker.count("attempt_failed"), "the attempt to fail", 60)
    # The client's own retries took a minute and a half.
    assert time.monotonic() - killed < 10
    tasks = spark_site.finish(workflow, 240)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    reason = "SparkServerDiedError: the Spark server ended with signal 9"
    assert tasks[0]["reasonForIncompletion"].startswith(reason)
    [line] = [line for line in worker.lines() if line.get("action") == "attempt_failed"]
    assert line["code"] == "PRG-311"
    assert len(spark_pids(worker)) == 2
    assert worker.stop() == 0
    spark_site.assert_nothing_left()


@pytest.mark.slow
def test_a_server_that_runs_out_of_memory_says_so(spark_site: WorkerSite) -> None:
    worker = spark_site.start(
        PERAGO_SPARK_MASTER=LOCAL,
        PERAGO_SPARK_CONF_spark__driver__memory="600m",
        PERAGO_SPARK_CONF_spark__driver__maxResultSize="0",
    )
    tasks = spark_site.finish(spark_site.workflow("s_greedy", signs=str(spark_site.signs)), 300)
    assert [task["status"] for task in tasks] == ["FAILED", "COMPLETED"]
    reason = "SparkServerDiedError: the Spark server ended with exit code 3: java.lang.OutOfMemory"
    assert tasks[0]["reasonForIncompletion"].startswith(reason)
    assert worker.stop() == 0


def test_the_resolved_settings_are_logged_once_without_secrets(spark_site: WorkerSite) -> None:
    worker = spark_site.start(
        PERAGO_SPARK_MASTER=LOCAL, PERAGO_SPARK_CONF_spark__hadoop__x__password="hidden-word"
    )
    [line] = [line for line in worker.lines() if line.get("action") == "spark_resolved"]
    assert line["spark.master"] == "local[2]"
    assert line["spark.hadoop.x.password"] == "********"
    assert "hidden-word" not in worker.log_text()
    assert worker.stop() == 0


def start_with(
    site: WorkerSite, remote: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """``perago start`` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "perago", "start", *site.targets, "--register"],
        cwd=site.home,
        env={**site.environment(), "SPARK_REMOTE": remote, **environment},
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


@pytest.mark.slow
def test_a_master_that_is_not_there_ends_the_worker_before_its_first_poll(
    spark_site: WorkerSite, tmp_path: Path
) -> None:
    port = loopback.choose(["nobody"], {})["nobody"]
    done = start_with(spark_site, PERAGO_SPARK_MASTER=f"spark://127.0.0.1:{port}")
    assert done.returncode == 3, done.stderr
    assert f"127.0.0.1:{port}: Connection refused" in done.stderr
    done = start_with(spark_site, PERAGO_SPARK_MASTER="yarn", HADOOP_CONF_DIR=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "there is no yarn-site.xml" in done.stderr


@pytest.mark.slow
def test_yarn_is_asked_with_the_cluster_s_own_configuration(
    spark_site: WorkerSite, tmp_path: Path
) -> None:
    """No YARN runs here: what answers shows that Spark looked where the configuration says."""
    with socket.create_server(("127.0.0.1", 0)) as manager:
        port = manager.getsockname()[1]
        (tmp_path / "yarn-site.xml").write_text(
            "<configuration>"
            f"<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:{port}</value>"
            "</property></configuration>"
        )

        def hear_twice() -> None:
            for _ in range(2):
                manager.accept()[0].close()

        heard = threading.Thread(target=hear_twice, daemon=True)
        heard.start()
        worker = subprocess.Popen(
            [sys.executable, "-m", "perago", "start", *spark_site.targets, "--register"],
            cwd=spark_site.home,
            env={
                **spark_site.environment(),
                "PERAGO_SPARK_MASTER": "yarn",
                "HADOOP_CONF_DIR": str(tmp_path),
            },
        )
        try:
            # The first connection is the preflight's, the second one is Spark's.
            heard.join(120)
            assert not heard.is_alive()
        finally:
            worker.terminate()
            worker.wait(60)


@pytest.mark.slow
def test_a_cluster_is_tried_before_the_first_poll(
    spark_site: WorkerSite, cluster: StandaloneCluster
) -> None:
    worker = spark_site.start(cluster.environment())
    assert len(spark_pids(worker)) == 1
    tasks = spark_site.finish(spark_site.workflow("s_copy"), 240)
    assert [task["status"] for task in tasks] == ["COMPLETED"]
    assert worker.stop() == 0
    spark_site.assert_nothing_left()
