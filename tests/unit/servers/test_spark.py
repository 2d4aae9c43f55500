"""What a Spark server is started with: its settings in one private file, and no secret else."""

from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.servers import spark
from perago.servers.memory import GIB
from perago.servers.properties import read_properties
from perago.servers.spark import ConnectServer, ConnectSettings
from perago.servers.toolchain import ivy, java, spark_jars
from perago.servers.watchdog import Watchdog

LAKEFS = LakeFSConnection("http://lakefs:8000", "key", SecretStr("lakefs-secret"))


class Unused(Watchdog):
    """A watchdog that is never asked for anything."""

    def __init__(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder, with nothing that would be searched for or fetched."""
    (tmp_path / "jars").mkdir()
    found = java.Java(tmp_path / "java" / "bin" / "java", 17, full=True)
    monkeypatch.setattr(java, "find", lambda _: found)
    monkeypatch.setattr(spark_jars, "find_or_fetch", lambda _: tmp_path / "jars")
    monkeypatch.setattr(ivy, "pyspark_home", lambda: tmp_path / "pyspark")
    monkeypatch.setattr(spark, "_launch_command", lambda *_: ["java", "server"])
    return tmp_path


def prepared(folder: Path, master: str, **conf: str) -> tuple[dict[str, str], dict[str, str]]:
    """The environment and the settings of a server."""
    settings = ConnectSettings(
        "test", LAKEFS, master, {key.replace("_", "."): value for key, value in conf.items()}
    )
    server = ConnectServer(folder, 15002, Unused(), token="connect-token", settings=settings)
    command = server.prepare()
    file = server.home / "spark.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert command.arguments == ["java", "server"]
    return command.env, read_properties(file)


@pytest.mark.parametrize("master", ["local[*]", "local", "yarn", "k8s://https://x", "spark://h:1"])
def test_spark_s_processes_authenticate_each_other_where_the_master_supports_it(
    folder: Path, master: str
) -> None:
    _, properties = prepared(folder, master)
    expected = None if master.startswith("spark://") else "true"
    assert properties.get("spark.authenticate") == expected
    # Spark makes the secret itself, or the operator of the cluster has one.
    assert "spark.authenticate.secret" not in properties


def test_a_local_cluster_gets_a_random_secret_in_the_private_file_only(folder: Path) -> None:
    env, first = prepared(folder, "local-cluster[2,1,1024]")
    _, second = prepared(folder, "local-cluster[2,1,1024]")
    secret = first["spark.authenticate.secret"]
    assert len(secret) > 40
    assert secret != second["spark.authenticate.secret"]
    assert secret not in env.values()


def test_the_user_s_settings_for_authentication_win(folder: Path) -> None:
    _, properties = prepared(folder, "local[*]", spark_authenticate="false")
    assert properties["spark.authenticate"] == "false"


def test_the_server_does_not_inherit_a_secret_of_the_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "CONDUCTOR_AUTH_KEY": "conductor-key",
        "CONDUCTOR_AUTH_SECRET": "conductor-secret",
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "lakefs-key",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "lakefs-secret",
        "SPARK_REMOTE": "sc://elsewhere/;token=spark-token",
        "AWS_SECRET_ACCESS_KEY": "aws-secret",
        "PERAGO_SPARK_CONF_spark__password": "spark-password",
    }
    for name, value in {**secrets, "HARMLESS": "yes"}.items():
        monkeypatch.setenv(name, value)
    env, _ = prepared(folder, "local[*]")
    assert not secrets.keys() & env.keys()
    assert not set(secrets.values()) & set(env.values())
    assert env["HARMLESS"] == "yes"


_LAUNCHER = r"""#!/bin/sh
printf '%s\0' java --add-modules=jdk.incubator.vector --add-opens=a/b=ALL-UNNAMED Main
"""


@pytest.mark.parametrize("full", [True, False])
def test_a_module_that_the_java_lacks_is_left_out_of_the_command(
    tmp_path: Path, *, full: bool
) -> None:
    executable = tmp_path / "java"
    executable.write_text(_LAUNCHER)
    executable.chmod(0o755)
    found = java.Java(executable, 21, full=full)
    command = spark._launch_command(found, tmp_path, tmp_path / "properties", {})
    module = [java.VECTOR_MODULE] if full else []
    assert command == ["java", *module, "--add-opens=a/b=ALL-UNNAMED", "Main"]


def test_executors_on_this_machine_need_a_full_java() -> None:
    assert ConnectSettings("test", LAKEFS, "local-cluster[2,1,1024]").java.wheel is False
    for master in ("local[*]", "yarn", "spark://h:1", "k8s://https://x"):
        assert ConnectSettings("test", LAKEFS, master).java is java.SPARK


@pytest.mark.parametrize(
    ("usable", "master", "memory", "result"),
    [
        (16 * GIB, "local[*]", "8192m", "2048m"),
        (GIB, "local[*]", "1024m", "256m"),
        (8 * GIB, "yarn", "2048m", "512m"),
        (256 * GIB, "spark://h:1", "4096m", "1024m"),
    ],
)
def test_the_driver_s_memory_comes_from_the_machine_s(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    usable: int,
    master: str,
    memory: str,
    result: str,
) -> None:
    monkeypatch.setattr(spark, "usable_memory", lambda: usable)
    _, properties = prepared(folder, master)
    assert properties["spark.driver.memory"] == memory
    # One result that is too large fails its query, and not the server.
    assert properties["spark.driver.maxResultSize"] == result


def test_the_user_s_memory_wins_and_the_result_s_follows_it(folder: Path) -> None:
    _, properties = prepared(folder, "local[*]", spark_driver_memory="6g")
    assert properties["spark.driver.memory"] == "6g"
    assert properties["spark.driver.maxResultSize"] == "1536m"
    _, properties = prepared(folder, "local[*]", spark_driver_maxResultSize="0")
    assert properties["spark.driver.maxResultSize"] == "0"


def test_attempts_share_a_server_fairly_unless_the_user_says_otherwise(folder: Path) -> None:
    assert prepared(folder, "local[*]")[1]["spark.scheduler.mode"] == "FAIR"
    _, properties = prepared(folder, "local[*]", spark_scheduler_mode="FIFO")
    assert properties["spark.scheduler.mode"] == "FIFO"


_LOG = """INFO Executor: Running task 0.0
Terminating due to java.lang.OutOfMemoryError: Java heap space
"""


class Ended(ConnectServer):
    """A server whose process ended with a status."""

    status = 0

    @property
    def exit_status(self) -> int:
        return self.status


@pytest.mark.parametrize(
    ("status", "log", "cause"),
    [
        (3, _LOG, "exit code 3: java.lang.OutOfMemoryError: Java heap space"),
        (3, "INFO Executor: nothing\n", "exit code 3"),
        (3, None, "exit code 3"),
        # An executor of a cluster was short of memory, and the driver said so long ago.
        (1, _LOG, "exit code 1"),
        (-9, _LOG, "signal 9"),
    ],
)
def test_the_cause_of_a_server_s_death_is_one_line(
    tmp_path: Path, status: int, log: str | None, cause: str
) -> None:
    (tmp_path / "logs").mkdir()
    settings = ConnectSettings("test", LAKEFS)
    server = Ended(tmp_path, 15002, Unused(), token="t", settings=settings)
    server.status = status
    if log is not None:
        server.log.write_text("x" * 100_000 + "\n" + log)
    assert server.cause_of_death == f"the Spark server ended with {cause}"


def watched(
    folder: Path, master: str, **changes: Any
) -> tuple[ConnectServer, dict[str, str], dict[str, str]]:
    """A prepared server, its environment and its settings."""
    settings = ConnectSettings("test", LAKEFS, master, **changes)
    server = ConnectServer(folder, 15002, Unused(), token="token", settings=settings)
    command = server.prepare()
    return server, command.env, read_properties(server.home / "spark.properties")


def test_without_being_asked_a_server_has_no_ui(folder: Path) -> None:
    server, _, properties = watched(folder, "local[*]")
    assert server.ui is None
    assert properties["spark.ui.enabled"] == "false"
    assert "spark.eventLog.enabled" not in properties


@pytest.mark.parametrize("master", ["local[*]", "spark://192.0.2.7:7077", "yarn"])
def test_the_ui_listens_on_the_address_that_is_wanted_and_the_driver_does_not(
    folder: Path, master: str
) -> None:
    server, env, properties = watched(folder, master, ui=("127.0.0.1", 0))
    assert env["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert properties["spark.ui.enabled"] == "true"
    assert server.ui == f"http://127.0.0.1:{properties['spark.ui.port']}"
    # Whoever sees the UI must not end jobs with it.
    assert properties["spark.ui.killEnabled"] == "false"
    here = master.startswith("local")
    assert (properties["spark.driver.bindAddress"] == "127.0.0.1") is here
    assert properties["spark.driver.host"]


def test_a_ui_whose_port_is_taken_gets_another(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server, _, properties = watched(folder, "local[*]", ui=("127.0.0.1", port))
        assert properties["spark.ui.port"] != str(port)
        assert server.ui is not None
        assert server.ui.endswith(properties["spark.ui.port"])


def test_event_logs_go_to_a_folder_or_to_an_address(folder: Path) -> None:
    events = folder / "spark events"
    _, _, properties = watched(folder, "local[*]", event_log=str(events))
    assert properties["spark.eventLog.enabled"] == "true"
    assert properties["spark.eventLog.dir"] == events.as_uri()
    assert stat.S_IMODE(events.stat().st_mode) == 0o700
    _, _, properties = watched(folder, "yarn", event_log="hdfs://nn/events")
    assert properties["spark.eventLog.dir"] == "hdfs://nn/events"


HADOOP = {
    "HADOOP_CONF_DIR": "/etc/hadoop",
    "YARN_CONF_DIR": "/etc/yarn",
    "HADOOP_USER_NAME": "etl",
    "HADOOP_OPTS": "-Dx=y",
}


@pytest.mark.parametrize("master", ["yarn", "local[*]", "spark://h:1"])
def test_the_configuration_of_hadoop_reaches_yarn_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    for name, value in HADOOP.items():
        monkeypatch.setenv(name, value)
    env, properties = prepared(folder, master)
    passed = set(HADOOP) - {"HADOOP_OPTS"} if master == "yarn" else set()
    assert HADOOP.keys() & env.keys() == passed
    # So that YARN's containers get the modules of pyspark.
    assert properties.get("spark.yarn.isPython") == ("true" if passed else None)
