"""A Spark Connect server of our own: from the installed pyspark, with S3A for LakeFS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from perago.connections import LakeFSConnection
from perago.errors import SetupError
from perago.servers.loopback import LOOPBACK
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
from perago.servers.truststore import build_truststore, java_options
from perago.servers.watchdog import Watchdog

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LAUNCHER_SECONDS = 60.0
_TRUSTSTORE = "perago-truststore.p12"
# For a server that runs small jobs only, as those of tests and first steps are.
SMALL_JOBS = {
    "spark.driver.extraJavaOptions": " ".join(java.QUICK_START),
    "spark.executor.extraJavaOptions": " ".join(java.QUICK_START),
    "spark.sql.shuffle.partitions": "4",
}
_LOCAL = re.compile(r"local(\[|$)")


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """What a Connect server is run with. ``conf`` wins over what is set here by default."""

    app_name: str
    lakefs: LakeFSConnection
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether functions run below the server itself, with this machine's files and packages."""
        return _LOCAL.match(self.master) is not None

    @property
    def stays_on_loopback(self) -> bool:
        """Whether nobody from another machine must reach the driver."""
        host = urlsplit(self.master).hostname
        alone = self.is_local or self.master.startswith("local-cluster[")
        return alone or host in {"localhost", LOOPBACK}


def cluster_python() -> str:
    """The interpreter on a cluster's machines, under the name that Spark's own tools read."""
    return os.environ.get("PYSPARK_PYTHON") or "python3"


def loopback_remote(port: int, token: str) -> str:
    """The connection string of a server on a loopback port; it carries the token."""
    # `localhost`, not 127.0.0.1: the client sends a token without TLS to that name only.
    return f"sc://localhost:{port}/;token={token}"


class ConnectServer(Server):
    """One Spark application, shared by all clients of this machine that know the token."""

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

    @property
    def remote(self) -> str:
        """Where clients find it; secret, because it carries the token."""
        return loopback_remote(self.port, self._token)

    def prepare(self) -> Command:
        executable = java.find(java.SPARK)
        cache = Cache.of_user()
        folder = spark_jars.find_or_fetch(cache)
        scratch = emptied(self.home / "tmp")
        # An empty folder: whatever the user's spark-defaults.conf says is not for this server.
        conf = emptied(self.home / "conf")
        properties = self.home / "spark.properties"
        write_private(properties, write_properties(self._properties(executable, folder, scratch)))
        home = ivy.pyspark_home()
        env = {
            **environment_without("SPARK_", "PYSPARK_", "HADOOP_", "AWS_", "LAKECTL_", "PERAGO_"),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_SCALA_VERSION": spark_jars.SCALA,
            "JAVA_HOME": str(executable.parents[1]),
            **self._python_environment(),
        }
        if self._settings.stays_on_loopback:
            env["SPARK_LOCAL_IP"] = LOOPBACK
        return Command(_launch_command(executable, home, properties, env), env)

    def healthy(self) -> bool:
        # The port is opened last, when the session is there.
        return listens(self.port)

    def _python_environment(self) -> dict[str, str]:
        """Which Python runs functions, and where it finds modules."""
        if self._settings.is_local:
            # The very interpreter and the very modules that this process has.
            return {
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
            }
        # On a cluster it is the cluster's; modules travel with each session (see artifacts).
        return {"PYSPARK_PYTHON": cluster_python()}

    def _properties(self, executable: Path, folder: Path, scratch: Path) -> dict[str, str]:
        settings = self._settings
        ours = {
            "spark.app.name": settings.app_name,
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(self.home / "warehouse"),
            "spark.hadoop.fs.s3a.buffer.dir": str(scratch) if settings.is_local else "",
            # Away from the user's own Maven folder, in which a POM may be without its JAR.
            "spark.jars.ivy": str(Cache.of_user().root / "spark-ivy"),
            **_mirror(),
            **s3a_settings(settings.lakefs),
        }
        if settings.stays_on_loopback:
            ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        merged = {key: value for key, value in ours.items() if value} | dict(settings.conf)
        _append(merged, "spark.driver.extraClassPath", f"{folder}/*", os.pathsep)
        # Out of memory, a JVM may live on and answer nothing; dead, it is started again.
        options = f"-Djava.io.tmpdir={scratch} -XX:+ExitOnOutOfMemoryError"
        _append(merged, "spark.driver.extraJavaOptions", options, " ")
        if not settings.is_local:
            # The script that starts a session's Python looks there for the cluster's own.
            merged.setdefault("spark.executorEnv.PYSPARK_PYTHON", cluster_python())
            for jar in sorted(folder.glob("*.jar")):
                _append(merged, "spark.jars", str(jar), ",")
        if settings.lakefs.authorities is not None:
            self._trust(settings.lakefs.authorities.file, executable, merged)
        # Last, because nothing that a user sets may open the server to others.
        return merged | {
            "spark.master": settings.master,
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.authenticate.token": self._token,
        }

    def _trust(self, bundle: Path, executable: Path, properties: dict[str, str]) -> None:
        store = build_truststore(bundle, executable, self.home / _TRUSTSTORE)
        _append(properties, "spark.driver.extraJavaOptions", java_options(str(store)), " ")
        if not self._settings.is_local:
            # Spark puts its files into the folder in which an executor runs.
            _append(properties, "spark.files", str(store), ",")
            _append(properties, "spark.executor.extraJavaOptions", java_options(_TRUSTSTORE), " ")


def _append(properties: dict[str, str], key: str, value: str, separator: str) -> None:
    """Add to what may be there already, rather than replace what a user has set."""
    properties[key] = separator.join(filter(None, [properties.get(key), value]))


def _mirror() -> dict[str, str]:
    mirror = os.environ.get("PERAGO_MAVEN_REPOSITORY")
    return {"spark.jars.repositories": mirror} if mirror else {}


def _launch_command(
    executable: Path, home: Path, properties: Path, env: dict[str, str]
) -> list[str]:
    """The command line of the server's JVM, from Spark's own launcher.

    ``spark-class`` is a shell script around that launcher. Asking it directly leaves no shell
    between this process and the JVM, and keeps the long list of module options Spark's own.
    """
    launcher = [str(executable), "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties)]
    try:
        answer = subprocess.run(
            [*launcher, *submit, "--class", _MAIN, "spark-internal"],
            capture_output=True,
            env=env,
            timeout=_LAUNCHER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(
            f"Spark's launcher did not answer: {error}",
            hint="Check the Java installation named by JAVA_HOME.",
        ) from error
    # The launcher first ends a line of its own, then each argument with a NUL.
    return answer.stdout.decode().lstrip("\0\n").rstrip("\0").split("\0")
