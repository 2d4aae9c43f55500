"""What a Spark server is started with: its settings in one private file, and no secret else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.servers import spark
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
