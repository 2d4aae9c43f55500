"""Find out before the first poll whether a master is one, is configured and can be reached.

Spark itself finds out when the first attempt starts it, and tells it in the middle of its log.
"""

from __future__ import annotations

import socket
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from perago.errors import BackendUnavailableError, ConfigurationError
from perago.servers.spark import HADOOP_FOLDERS, ConnectSettings

_CONNECT_SECONDS = 5.0
_STANDALONE_PORT = 7077
_YARN_PORT = 8032
_RESOURCE_MANAGER = "yarn.resourcemanager"
# Each of them says which image executors run.
_IMAGES = (
    "spark.kubernetes.container.image",
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.executor.podTemplateFile",
)

HostAndPort = tuple[str, int]


def check_master(settings: ConnectSettings, environment: Mapping[str, str]) -> None:
    """Raise ``ConfigurationError`` for a wrong master, ``BackendUnavailableError`` for none."""
    master = settings.master
    if settings.is_local or master.startswith("local-cluster["):
        return
    if master == "yarn":
        _require_one("YARN's resource manager", _resource_managers(environment))
    elif master.startswith("spark://"):
        places = master.removeprefix("spark://").split(",")
        _require_one("the Spark master", (_address(it, _STANDALONE_PORT) for it in places))
    elif master.startswith("k8s://"):
        _require_image(settings.conf)
        _require_one("the API server of Kubernetes", [_api_server(master)])
    else:
        raise ConfigurationError(
            f"{master!r} is no master that Spark knows",
            hint="Write local[*], spark://host:7077, yarn or k8s://https://host:6443.",
        )


def _require_one(what: str, addresses: Iterable[HostAndPort]) -> None:
    """One of them must accept a connection; in a set of several, the others may be down."""
    failures: list[str] = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise BackendUnavailableError(
        f"{what} cannot be reached: {'; '.join(failures)}",
        hint="Check the master's address and that this machine may connect to it.",
    )


def _address(text: str, default: int) -> HostAndPort:
    parts = urlsplit(f"//{text.strip()}")
    try:
        port = parts.port
    except ValueError:
        port = None
        parts = urlsplit("//")
    if not parts.hostname:
        raise ConfigurationError(
            f"{text!r} is no host with a port",
            hint=f"Write host:{default}, or several with commas.",
        )
    return parts.hostname, port or default


def _api_server(master: str) -> HostAndPort:
    address = master.removeprefix("k8s://")
    scheme, sign, rest = address.partition("://")
    host = (rest if sign else address).split("/")[0]
    return _address(host, 80 if scheme == "http" else 443)


def _require_image(conf: Mapping[str, str]) -> None:
    if not any(conf.get(key) for key in _IMAGES):
        raise ConfigurationError(
            f"on Kubernetes, executors need an image: {_IMAGES[0]} is not set",
            hint=f"Add --conf {_IMAGES[0]}=IMAGE, with Spark and this worker's Python in it "
            "(docs/spark.md, section on Kubernetes).",
        )


def _resource_managers(environment: Mapping[str, str]) -> list[HostAndPort]:
    folders = [Path(found) for name in HADOOP_FOLDERS if (found := environment.get(name))]
    if not folders:
        raise ConfigurationError(
            f"on YARN, Spark needs the cluster's configuration: {HADOOP_FOLDERS[0]} is not set",
            hint=f"Set {HADOOP_FOLDERS[0]} to the folder that has yarn-site.xml and core-site.xml.",
        )
    files = [file for folder in folders if (file := folder / "yarn-site.xml").is_file()]
    if not files:
        raise ConfigurationError(
            f"there is no yarn-site.xml in {', '.join(map(str, folders))}",
            hint=f"Set {HADOOP_FOLDERS[0]} to the folder of the cluster's configuration.",
        )
    return list(read_resource_managers(files[0]))


def read_resource_managers(file: Path) -> Iterator[HostAndPort]:
    """Yield where YARN's resource managers take applications, from a ``yarn-site.xml``."""
    try:
        # The operator's own file, of this machine.
        root = ET.parse(file).getroot()  # noqa: S314
    except (OSError, ET.ParseError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}", hint="Correct it; Spark reads it too."
        ) from error
    found = {
        str(item.findtext("name", "")).strip(): str(item.findtext("value", "")).strip()
        for item in root.iter("property")
    }
    ids = [name.strip() for name in found.get(f"{_RESOURCE_MANAGER}.ha.rm-ids", "").split(",")]
    for suffix in (f".{name}" if name else "" for name in ids):
        host = found.get(f"{_RESOURCE_MANAGER}.hostname{suffix}") or "localhost"
        given = found.get(f"{_RESOURCE_MANAGER}.address{suffix}", "")
        # A value may refer to another one, which is nearly always the host name.
        yield _address(given if given and "${" not in given else host, _YARN_PORT)
