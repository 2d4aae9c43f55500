"""Run the Conductor server, with SQLite as its database."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from perago.errors import SetupError
from perago.servers.endpoints import ConductorEndpoint
from perago.servers.loopback import LOOPBACK
from perago.servers.server import Command, Server, answers, emptied, environment_without
from perago.servers.toolchain import ivy, java, tool
from perago.servers.toolchain.cache import Cache

VERSION = "3.32.3"
_JAR = f"conductor-server-{VERSION}-boot.jar"
_ARTIFACT = f"conductor-{VERSION}-unpacked"
_UNPACK_SECONDS = 300.0
_REQUEST = ivy.FetchRequest(
    artifact=f"conductor-{VERSION}",
    title=f"fetch Conductor {VERSION}",
    dependencies=(ivy.Coordinates("org.conductoross", "conductor-server", VERSION, "boot"),),
    excluded_organisations=(),
    expected_bytes=457_760_812,
    alternative="download the server's `boot` jar and set PERAGO_CONDUCTOR_JAR to its path",
)


class Conductor(Server):
    """Conductor without its UI, its AI integrations and its scheduler."""

    name = "conductor"
    # A start takes half a minute on two idle cores, and much longer on a loaded machine.
    startup_seconds = 240.0

    @property
    def endpoint(self) -> ConductorEndpoint:
        """The address for clients."""
        return ConductorEndpoint.at(self.port)

    def prepare(self) -> Command:
        # Java first: if it is missing, say so before half a gigabyte is fetched.
        found = java.find(java.CONDUCTOR)
        jar = find_or_fetch(Cache.of_user())
        scratch = emptied(self.home / "tmp")
        database = f"{self.home / 'conductor.db'}?busy_timeout=15000&journal_mode=WAL"
        # Tuned for a quick start and a small footprint, not for throughput.
        machine = ["-Xmx768m", *java.QUICK_START]
        settings = {
            "server.address": LOOPBACK,
            "server.port": self.port,
            "spring.datasource.url": f"jdbc:sqlite:{database}",
            "conductor.integrations.ai.enabled": "false",
            "conductor.scheduler.enabled": "false",
            "conductor.app.sweeperThreadCount": 2,
            "conductor.app.taskExecutionPostponeDuration": "1s",
        }
        arguments = [str(found.executable), *machine, f"-Djava.io.tmpdir={scratch}", "-jar"]
        arguments += [str(jar), *(f"--{key}={value}" for key, value in settings.items())]
        # Spring also reads settings from the environment.
        env = environment_without("CONDUCTOR_", "SPRING_", "SERVER_", "MANAGEMENT_", "LAKECTL_")
        return Command(arguments, env, java=str(found))

    def healthy(self) -> bool:
        return is_healthy(self.port)


def is_healthy(port: int) -> bool:
    """Whether Conductor answers API calls.

    Its actuator cannot be used: it reports DOWN when there is no Elasticsearch.
    """
    return answers(port, "/health") and answers(port, "/api/metadata/taskdefs")


def find_or_fetch(cache: Cache) -> Path:
    """Return the jar that PERAGO_CONDUCTOR_JAR names, else fetch it once into the cache."""
    if named := os.environ.get("PERAGO_CONDUCTOR_JAR"):
        jar = Path(named).absolute()
        if not jar.is_file():
            raise SetupError(
                f"PERAGO_CONDUCTOR_JAR names {named}, which is not a file",
                hint="Set it to the path of the server's `boot` jar, or unset it.",
            )
        return jar
    return cache.obtain(_ARTIFACT, _fetch) / _JAR


def _fetch(folder: Path) -> None:
    """Fetch the jar and unpack the jars in it, which Java reads far quicker from files.

    A start takes half the processor time then.
    """
    packed = folder / "packed"
    packed.mkdir()
    ivy.retrieve(_REQUEST, packed)
    unpack = [str(java.find(java.CONDUCTOR).executable), "-Djarmode=tools", "-jar"]
    unpack += [str(packed / _JAR), "extract", "--destination", str(folder), "--force"]
    tool.run(
        unpack,
        what="unpack Conductor",
        cwd=folder,
        log=packed / "unpack.log",
        seconds=_UNPACK_SECONDS,
        alternative=_REQUEST.alternative,
    )
    shutil.rmtree(packed)
