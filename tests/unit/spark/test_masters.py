"""A master that is wrong or down is named before the first poll."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import BackendUnavailableError, ConfigurationError
from perago.servers.spark import ConnectSettings
from perago.spark.masters import check_master, read_resource_managers

LAKEFS = LakeFSConnection("http://lakefs:8000", "key", SecretStr("secret"))
IMAGE = {"spark.kubernetes.container.image": "registry.example.com/spark"}


def check(master: str, conf: dict[str, str] | None = None, **environment: str) -> None:
    check_master(ConnectSettings("test", LAKEFS, master, conf or {}), environment)


def site(folder: Path, **properties: str) -> Path:
    """A ``yarn-site.xml``."""
    items = "".join(
        f"<property><name>yarn.resourcemanager.{name.replace('_', '.')}</name>"
        f"<value> {value} </value></property>"
        for name, value in properties.items()
    )
    file = folder / "yarn-site.xml"
    file.write_text(f"<?xml version='1.0'?><configuration>{items}</configuration>")
    return file


@pytest.fixture
def up() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def down() -> Iterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("master", ["local", "local[2,3]", "local-cluster[2,1,1024]"])
def test_a_master_in_the_process_itself_needs_nothing(master: str) -> None:
    check(master)


def test_one_of_several_standalone_masters_must_be_up(up: str, down: str) -> None:
    check(f"spark://{up}")
    check(f"spark://{down},{up}")
    with pytest.raises(BackendUnavailableError, match=f"{down}: Connection refused"):
        check(f"spark://{down}")


@pytest.mark.parametrize("master", ["mesos://h:1", "localish", "Yarn", "http://h:1"])
def test_what_spark_does_not_know_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{master}' is no master") as caught:
        check(master)
    assert "spark://host:7077" in caught.value.hint


@pytest.mark.parametrize("master", ["spark://", "spark://:7077", "spark://host:port"])
def test_an_address_without_a_host_or_with_a_wrong_port_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match="is no host with a port"):
        check(master)


def test_kubernetes_needs_an_image_and_its_api_server(up: str, down: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.kubernetes\.container\.image is not set"):
        check(f"k8s://https://{up}")
    check(f"k8s://https://{up}", IMAGE)
    check(f"k8s://{up}", {"spark.kubernetes.executor.podTemplateFile": "/pod.yaml"})
    with pytest.raises(BackendUnavailableError, match=f"Kubernetes cannot be reached: {down}"):
        check(f"k8s://https://{down}/api", IMAGE)


def test_yarn_needs_the_configuration_of_its_cluster(tmp_path: Path, up: str, down: str) -> None:
    with pytest.raises(ConfigurationError, match="HADOOP_CONF_DIR is not set"):
        check("yarn")
    with pytest.raises(ConfigurationError, match=r"no yarn-site\.xml in"):
        check("yarn", HADOOP_CONF_DIR=str(tmp_path))
    site(tmp_path, address=up)
    check("yarn", HADOOP_CONF_DIR=str(tmp_path))
    check("yarn", HADOOP_CONF_DIR=str(tmp_path / "none"), YARN_CONF_DIR=str(tmp_path))
    site(tmp_path, address=down)
    with pytest.raises(BackendUnavailableError, match="YARN's resource manager cannot be reached"):
        check("yarn", HADOOP_CONF_DIR=str(tmp_path))
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check("yarn", HADOOP_CONF_DIR=str(tmp_path))


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"hostname": "rm"}, [("rm", 8032)]),
        ({"hostname": "rm", "address": "other:8050"}, [("other", 8050)]),
        (
            {"hostname": "rm", "address": "${yarn.resourcemanager.hostname}:8032"},
            [("rm", 8032)],
        ),
        (
            {"ha_rm-ids": "a, b", "hostname_a": "one", "address_b": "two:8050"},
            [("one", 8032), ("two", 8050)],
        ),
        ({}, [("localhost", 8032)]),
    ],
)
def test_resource_managers_are_read_from_yarn_s_own_file(
    tmp_path: Path, properties: dict[str, str], found: list[tuple[str, int]]
) -> None:
    assert list(read_resource_managers(site(tmp_path, **properties))) == found
