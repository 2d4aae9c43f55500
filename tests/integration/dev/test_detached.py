"""One stack, left running by `up --detach` and used by other processes."""

from __future__ import annotations

import ipaddress
import json
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago.servers.process import wait_gone
from support import stack_client as client
from support.dev_commands import DevCommands

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]
_SPARK = "with Spark"
_NO_SPARK = "without Spark"


@pytest.fixture(
    scope="module",
    params=[_NO_SPARK, pytest.param(_SPARK, marks=[pytest.mark.slow, pytest.mark.spark])],
)
def options(request: pytest.FixtureRequest) -> list[str]:
    return ["--detach"] if request.param == _SPARK else ["--detach", "--no-spark"]


@pytest.fixture(scope="module")
def perago(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCommands]:
    commands = DevCommands(tmp_path_factory.mktemp("detached") / "stack")
    yield commands
    commands.run("down")


@pytest.fixture(scope="module")
def details(perago: DevCommands, options: list[str]) -> Any:
    return perago.json("up", *options)


def _secrets(details: Any) -> list[str]:
    tokens = [details["spark"]["remote"].rpartition("=")[2]] if details["spark"] else []
    return [details["lakefs"]["secret_access_key"], *tokens]


def _with_spark(details: Any, value: Any) -> list[Any]:
    """A list of one, or of none for a stack without Spark."""
    return [value] if details["spark"] else []


def _processes(perago: DevCommands) -> list[psutil.Process]:
    recorded = perago.recorded().values()
    servers = [psutil.Process(identity.pid) for identity in recorded if identity.alive]
    return servers + [child for server in servers for child in server.children(recursive=True)]


def test_the_json_alone_is_enough_to_use_the_servers(details: Any, tmp_path: Path) -> None:
    file = tmp_path / "details.json"
    file.write_text(json.dumps(details))
    program = [sys.executable, client.__file__, str(file)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    wanted = {"repository": "smoke", "workflow": "RUNNING"}
    assert json.loads(done.stdout) == wanted | ({"spark": [1000, 1000]} if details["spark"] else {})
    if not details["spark"]:
        return
    # A 12 kB `_SUCCESS` is the magic committer's: the renaming one leaves an empty file.
    listing = client.lakefs(details, "GET", "/repositories/smoke/refs/main/objects/ls?prefix=num")
    sizes = {entry["path"]: entry["size_bytes"] for entry in listing["results"]}
    assert sizes["numbers/_SUCCESS"] > 0


def test_nothing_listens_beyond_loopback(details: Any, perago: DevCommands) -> None:
    listening = [
        connection.laddr.ip
        for process in _processes(perago)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 2 + bool(details["spark"])
    assert [ip for ip in listening if not _is_loopback(ip)] == []


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    # A JVM listens on the IPv4 loopback by its IPv6 spelling.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def test_no_secret_is_in_an_argument_list_or_a_log(details: Any, perago: DevCommands) -> None:
    arguments = "\n".join(" ".join(process.cmdline()) for process in _processes(perago))
    logs = "\n".join(path.read_text() for path in (perago.data_dir / "logs").iterdir())
    for secret in _secrets(details):
        assert secret not in arguments
        assert secret not in logs


def test_files_with_secrets_are_private(details: Any, perago: DevCommands) -> None:
    assert stat.S_IMODE(perago.data_dir.stat().st_mode) == 0o700
    # LakeFS maps its key-value store from files of gigabytes, which are almost all holes.
    small = [p for p in perago.data_dir.rglob("*") if p.is_file() and p.stat().st_size < 1_000_000]
    holders = [p for p in small if any(s.encode() in p.read_bytes() for s in _secrets(details))]
    names = {path.name for path in holders}
    assert {"stack.json", "lakefs.json", *_with_spark(details, "spark.properties")} <= names
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}


def test_status_names_each_server(details: Any, perago: DevCommands) -> None:
    servers = perago.json("status")["servers"]
    running = {name: identity.pid for name, identity in perago.recorded().items()}
    assert set(running) == {"lakefs", "conductor", *_with_spark(details, "spark")}
    assert {server["name"]: server["pid"] for server in servers if server["pid"]} == running
    assert {server["health"] for server in servers if server["pid"]} == {"healthy"}
    assert details["lakefs"]["endpoint"].endswith(str(servers[0]["port"]))


def test_env_prints_exports_that_a_shell_understands(details: Any, perago: DevCommands) -> None:
    lines = perago.run("env").stdout.splitlines()
    exports = dict(shlex.split(line)[1].split("=", 1) for line in lines)
    assert exports == {
        "LAKECTL_SERVER_ENDPOINT_URL": details["lakefs"]["endpoint"],
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": details["lakefs"]["access_key_id"],
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": details["lakefs"]["secret_access_key"],
        "CONDUCTOR_SERVER_URL": details["conductor"]["server_url"],
        **({"SPARK_REMOTE": details["spark"]["remote"]} if details["spark"] else {}),
    }
    assert perago.json("env") == details


def test_logs_are_prefixed_unless_one_is_named(details: Any, perago: DevCommands) -> None:
    together = perago.run("logs").stdout.splitlines()
    servers = {"lakefs", "conductor", *_with_spark(details, "spark")}
    assert {line.split(" | ")[0] for line in together} == servers
    alone = perago.run("logs", "lakefs").stdout
    assert alone
    assert not alone.startswith("lakefs | ")


def test_a_second_up_shows_the_same_stack(
    details: Any, perago: DevCommands, options: list[str]
) -> None:
    before = perago.recorded()
    assert perago.json("up", *options) == details
    assert perago.recorded() == before


def test_a_killed_server_is_dead_in_the_status(details: Any, perago: DevCommands) -> None:
    killed = perago.recorded()["lakefs"]
    killed.kill()
    assert wait_gone([killed], 10) == []  # the signal is sent, not yet obeyed, when kill returns
    said = perago.run("status", "--json")
    assert said.returncode == 3
    health = {server["name"]: server["health"] for server in json.loads(said.stdout)["servers"]}
    assert (health["lakefs"], health["conductor"]) == ("dead", "healthy")
    assert "logs/lakefs.log" in perago.run("status").stderr


def test_down_leaves_no_process(details: Any, perago: DevCommands) -> None:
    processes = _processes(perago)
    identities = perago.recorded()
    assert perago.run("down").returncode == 0
    assert not any(identity.alive for identity in identities.values())
    assert not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert perago.recorded() == {}


@pytest.mark.slow
def test_up_finds_the_data_again(details: Any, perago: DevCommands) -> None:
    first = perago.json("up", "--detach", "--no-spark")
    client.create_repository(first, "kept")
    perago.run("down")
    again = perago.json("up", "--detach", "--no-spark")
    for name in ("lakefs", "conductor"):
        assert again[name] == first[name] == details[name]
    names = [found["id"] for found in client.lakefs(again, "GET", "/repositories")["results"]]
    assert "kept" in names
