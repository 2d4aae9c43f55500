"""Run a Spark Connect server from the installed pyspark, with S3A for LakeFS."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from perago.connections import LakeFSConnection
from perago.errors import SetupError
from perago.servers import loopback, truststore
from perago.servers.loopback import LOOPBACK, routed_address
from perago.servers.memory import GIB, read_size, usable_memory, write_size
from perago.servers.properties import write_properties
from perago.servers.s3a import s3a_settings
from perago.servers.server import (
    Command,
    Server,
    emptied,
    environment_without,
    listens,
    write_private,
)
from perago.servers.toolchain import ivy, java, spark_jars
from perago.servers.toolchain.cache import Cache
from perago.servers.watchdog import Watchdog
from perago.text import shorten

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LAUNCHER_SECONDS = 60.0
_TRUSTSTORE = "perago-truststore.jks"
# For a server that runs small jobs only, such as those of tests and first steps.
SMALL_JOBS = {
    "spark.driver.extraJavaOptions": " ".join(java.QUICK_START),
    "spark.executor.extraJavaOptions": " ".join(java.QUICK_START),
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
}
_MEMORY = "spark.driver.memory"
_RESULT_SIZE = "spark.driver.maxResultSize"
_LEAST_MEMORY = GIB
# A driver of a cluster holds plans and results, and no data.
_MOST_CLUSTER_MEMORY = 4 * GIB
# Of the driver's memory, for one result: it is there more than once while it is sent.
_RESULT_SHARE = 4
# What would change Spark's settings, and what concerns the worker alone.
_NOT_INHERITED = (
    *("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "AWS_"),
    *("LAKECTL_", "CONDUCTOR_", "PERAGO_"),
)
# What -XX:+ExitOnOutOfMemoryError makes of it.
_EXIT_OUT_OF_MEMORY = 3
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError[^\n]*")
_LAST_BYTES = 64 << 10
_LONGEST_LINE = 200
# Where the configuration of a Hadoop cluster is; the launcher puts both on the class path.
HADOOP_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_ON_YARN = (*HADOOP_FOLDERS, "HADOOP_USER_NAME")
_LOCAL = re.compile(r"local(\[|$)")


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """The settings of a Connect server; ``conf`` wins over Perago's defaults."""

    app_name: str
    lakefs: LakeFSConnection
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The host and the wanted port of the UI; None serves none.
    ui: tuple[str, int] | None = None
    # A folder, or the address of one.
    event_log: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether functions run in children of the server, with this machine's files."""
        return _LOCAL.match(self.master) is not None

    @property
    def stays_on_loopback(self) -> bool:
        """Whether all executors are on this machine, so that the driver can use loopback."""
        host = urlsplit(self.master).hostname
        local = self.is_local or self.master.startswith("local-cluster[")
        return local or host in {"localhost", LOOPBACK}

    @property
    def java(self) -> java.Need:
        """The Java that the server needs on this machine."""
        executors_here = self.master.startswith("local-cluster[")
        return java.SPARK_WITH_EXECUTORS if executors_here else java.SPARK

    def memory(self) -> dict[str, str]:
        """Choose the driver's memory from the machine's, and the most that one result may take.

        In local mode the driver does all the work: it gets half of the memory, because Python
        functions and the worker's executors have theirs outside of it. A result that is too large
        then fails its query, before it ends the server and with it every attempt.
        """
        usable = usable_memory()
        size = usable // 2 if self.is_local else min(usable // 4, _MOST_CLUSTER_MEMORY)
        memory = self.conf.get(_MEMORY) or write_size(max(size, _LEAST_MEMORY))
        result = (read_size(memory) or GIB) // _RESULT_SHARE
        return {_MEMORY: memory, _RESULT_SIZE: self.conf.get(_RESULT_SIZE) or write_size(result)}

    def events(self) -> dict[str, str]:
        """Make Spark write its event log, if that is wanted."""
        place = self.event_log
        if place is None:
            return {}
        address = place if "://" in place else Path(place).as_uri()
        return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": address}

    def authentication(self) -> dict[str, str]:
        """Make Spark's own processes authenticate each other, where the master supports it.

        In a local process, on YARN and on Kubernetes Spark makes the secret itself. The machines of
        a standalone cluster have their operator's secret, or none: there the user's settings count.
        """
        if self.is_local or self.master == "yarn" or self.master.startswith("k8s://"):
            return {"spark.authenticate": "true"}
        if self.master.startswith("local-cluster["):
            secret = secrets.token_urlsafe(32)
            return {"spark.authenticate": "true", "spark.authenticate.secret": secret}
        return {}


def cluster_python() -> str:
    """Return the interpreter of a cluster's machines, from the variable that Spark's tools read."""
    return os.environ.get("PYSPARK_PYTHON") or "python3"


def loopback_remote(port: int, token: str) -> str:
    """Build the connection string of a server on a loopback port; it carries the token."""
    # `localhost`, not 127.0.0.1: the client sends a token without TLS to that name only.
    return f"sc://localhost:{port}/;token={token}"


class ConnectServer(Server):
    """One Spark application, shared by all clients of this machine that have the token."""

    name = "spark"
    startup_seconds = 180.0

    def __init__(
        self,
        data_dir: Path,
        port: int,
        watchdog: Watchdog,
        *,
        token: str,
        settings: ConnectSettings,
    ) -> None:
        super().__init__(data_dir, port, watchdog)
        self._token = token
        self._settings = settings
        # Where its UI is, once it is prepared; None without one.
        self.ui: str | None = None

    @property
    def remote(self) -> str:
        """The connection string for clients; secret, because it carries the token."""
        return loopback_remote(self.port, self._token)

    @property
    def cause_of_death(self) -> str:
        """Why the server ended, in one line: how, and the line of its log if memory was short."""
        line = find_out_of_memory(self.log) if self.exit_status == _EXIT_OUT_OF_MEMORY else None
        how = f"the Spark server ended with {self.ending}"
        return f"{how}: {line}" if line else how

    def prepare(self) -> Command:
        found = java.find(self._settings.java)
        if (place := self._settings.event_log) is not None and "://" not in place:
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
        cache = Cache.of_user()
        folder = spark_jars.find_or_fetch(cache)
        scratch = emptied(self.home / "tmp")
        ui = self._choose_ui()
        # An empty folder, so that a spark-defaults.conf of the user does not apply.
        conf = emptied(self.home / "conf")
        properties = self.home / "spark.properties"
        write_private(properties, write_properties(self._properties(found, folder, scratch) | ui))
        home = ivy.pyspark_home()
        env = {
            **environment_without(*_NOT_INHERITED),
            **self._hadoop_environment(),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_SCALA_VERSION": spark_jars.SCALA,
            "JAVA_HOME": str(found.home),
            **self._python_environment(),
        }
        if self._settings.ui is not None:
            # The only way to say on which of the machine's addresses the UI listens.
            env["SPARK_LOCAL_IP"] = self._settings.ui[0]
        elif self._settings.stays_on_loopback:
            env["SPARK_LOCAL_IP"] = LOOPBACK
        return Command(_launch_command(found, home, properties, env), env, java=str(found))

    def healthy(self) -> bool:
        # The server opens its port when everything else is up.
        return listens(self.port)

    def _choose_ui(self) -> dict[str, str]:
        """Choose the port of the UI; its settings, which come last."""
        if self._settings.ui is None:
            return {}
        host, wanted = self._settings.ui
        port = loopback.choose(["ui"], {"ui": wanted} if wanted else {})["ui"]
        self.ui = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return {"spark.ui.enabled": "true", "spark.ui.port": str(port)}

    def _hadoop_environment(self) -> dict[str, str]:
        """What says where YARN is and who asks; elsewhere it would only disturb."""
        if self._settings.master != "yarn":
            return {}
        return {name: os.environ[name] for name in _ON_YARN if os.environ.get(name)}

    def _python_environment(self) -> dict[str, str]:
        """Choose the Python that runs functions, and where it finds modules."""
        if self._settings.is_local:
            # The interpreter and the modules of this process.
            return {
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
            }
        # On a cluster, the cluster's Python; sessions send modules (perago.spark.base).
        return {"PYSPARK_PYTHON": cluster_python()}

    def _properties(self, found: java.Java, folder: Path, scratch: Path) -> dict[str, str]:
        settings = self._settings
        defaults = {
            "spark.app.name": settings.app_name,
            **settings.memory(),
            # The attempts share the server: a short one does not wait for a long one.
            "spark.scheduler.mode": "FAIR",
            "spark.ui.enabled": "false",
            # The UI authenticates no user, so it only shows.
            "spark.ui.killEnabled": "false",
            **settings.events(),
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(self.home / "warehouse"),
            "spark.hadoop.fs.s3a.buffer.dir": str(scratch) if settings.is_local else "",
            # Not the user's Maven folder, which may hold a POM without its JAR.
            "spark.jars.ivy": str(Cache.of_user().root / "spark-ivy"),
            **_mirror(),
            **s3a_settings(settings.lakefs),
            **settings.authentication(),
        }
        if settings.stays_on_loopback:
            defaults |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        elif settings.ui is not None:
            # Without these the driver would take the UI's address, which is on loopback.
            own = routed_address(urlsplit(settings.master.removeprefix("k8s://")).hostname)
            defaults |= {"spark.driver.host": own, "spark.driver.bindAddress": "0.0.0.0"}  # noqa: S104
        if settings.master == "yarn":
            # A server in Java runs Python functions: YARN's containers need pyspark's modules.
            defaults["spark.yarn.isPython"] = "true"
        merged = {key: value for key, value in defaults.items() if value} | dict(settings.conf)
        _append(merged, "spark.driver.extraClassPath", f"{folder}/*", os.pathsep)
        # A JVM out of memory may stay alive without answering; a dead one is started again.
        options = f"-Djava.io.tmpdir={scratch} -XX:+ExitOnOutOfMemoryError"
        _append(merged, "spark.driver.extraJavaOptions", options, " ")
        if not settings.is_local:
            # The script that starts Python for a session reads the cluster's Python from it.
            merged.setdefault("spark.executorEnv.PYSPARK_PYTHON", cluster_python())
            for jar in sorted(folder.glob("*.jar")):
                _append(merged, "spark.jars", str(jar), ",")
        self._trust(found, merged)
        # Last, because a setting of the user must not open the server to other machines.
        return merged | {
            "spark.master": settings.master,
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.authenticate.token": self._token,
        }

    def _trust(self, found: java.Java, properties: dict[str, str]) -> None:
        """Trust the private authority that is named; the wheel's Java, else what Python trusts."""
        authorities, target = self._settings.lakefs.authorities, self.home / _TRUSTSTORE
        if authorities is not None:
            truststore.write_bundle(authorities, target)
        elif not found.is_wheel or truststore.write_machine(target) is None:
            return
        _trust(properties, "driver", target)
        if authorities is not None and not self._settings.is_local:
            # Spark copies the files to the executor's working directory.
            _append(properties, "spark.files", str(target), ",")
            _trust(properties, "executor", _TRUSTSTORE)


def find_out_of_memory(log: Path) -> str | None:
    """Return what the JVM last wrote about its memory; None if it wrote nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            text = file.read(_LAST_BYTES).decode(errors="replace")
    except OSError:
        return None
    found = _OUT_OF_MEMORY.findall(text)
    return shorten(found[-1].strip(), _LONGEST_LINE) if found else None


def _append(properties: dict[str, str], key: str, value: str, separator: str) -> None:
    """Append to a setting, so that the value of the user is kept."""
    properties[key] = separator.join(filter(None, [properties.get(key), value]))


def _trust(properties: dict[str, str], role: str, store: Path | str) -> None:
    options = " ".join(truststore.java_options(store))
    _append(properties, f"spark.{role}.extraJavaOptions", options, " ")


def _mirror() -> dict[str, str]:
    mirror = os.environ.get("PERAGO_MAVEN_REPOSITORY")
    return {"spark.jars.repositories": mirror} if mirror else {}


def _launch_command(
    found: java.Java, home: Path, properties: Path, env: dict[str, str]
) -> list[str]:
    """Get the command line of the server's JVM from Spark's own launcher.

    ``spark-class`` is a shell script around that launcher. Calling the launcher directly leaves no
    shell between this process and the JVM, and Spark keeps its long list of module options, of
    which one is left out where the Java lacks the module: Spark does without it.
    """
    launcher = [str(found.executable), "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties)]
    try:
        printed = subprocess.run(
            [*launcher, *submit, "--class", _MAIN, "spark-internal"],
            capture_output=True,
            env=env,
            timeout=_LAUNCHER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(
            f"Spark's launcher failed: {error}",
            hint="Check the Java installation named by JAVA_HOME.",
        ) from error
    # The launcher prints a line end first, then each argument with a NUL after it.
    command = printed.stdout.decode().lstrip("\0\n").rstrip("\0").split("\0")
    return [part for part in command if found.full or part != java.VECTOR_MODULE]
