"""The Spark Connect server: from the installed pyspark, with S3A for LakeFS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from perago.dev import ivy, java
from perago.dev.cache import Cache
from perago.dev.endpoints import LakeFSEndpoint, SparkEndpoint
from perago.dev.leash import Leash
from perago.dev.ports import LOOPBACK
from perago.dev.server import (
    Command,
    Server,
    emptied,
    environment_without,
    listens,
    write_private,
)
from perago.errors import SetupError

VERSION = "4.1.2"
_SCALA = "2.13"
_HADOOP = "3.4.2"
_AWS_SDK = "2.29.52"
# The SDK's modules that S3A uses: 10 MB in place of the 640 MB bundle with every AWS service.
_AWS_MODULES = (
    "s3",
    "s3-transfer-manager",
    "sts",
    "apache-client",
    "netty-nio-client",
    "url-connection-client",
)
_REQUEST = ivy.Request(
    title=f"fetch S3A for Spark {VERSION}",
    dependencies=(
        # Alone, for its committers: its dependencies are the connectors of every cloud.
        ivy.Coordinates("org.apache.spark", f"spark-hadoop-cloud_{_SCALA}", VERSION),
        # Alone as well: it asks for the AWS bundle.
        ivy.Coordinates("org.apache.hadoop", "hadoop-aws", _HADOOP),
        *(
            ivy.Coordinates("software.amazon.awssdk", module, _AWS_SDK, transitive=True)
            for module in _AWS_MODULES
        ),
    ),
    # pyspark carries these itself; a second version on the class path can only do harm.
    excluded_organisations=(
        "io.netty",
        "org.slf4j",
        "commons-codec",
        "commons-logging",
        "org.apache.httpcomponents",
    ),
    expected_bytes=10_000_000,
    way_round="start without Spark (`perago dev up --no-spark`)",
)
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LAUNCHER_SECONDS = 60.0


class Spark(Server):
    """One Spark application in local mode, shared by all clients that know the token."""

    name = "spark"
    startup_seconds = 180.0

    def __init__(
        self, data_dir: Path, port: int, leash: Leash, *, token: str, lakefs: LakeFSEndpoint
    ) -> None:
        super().__init__(data_dir, port, leash)
        self._token = token
        self._lakefs = lakefs

    @property
    def endpoint(self) -> SparkEndpoint:
        """Where clients find it."""
        return SparkEndpoint.at(self.port, self._token)

    def prepare(self) -> Command:
        executable = java.find(java.SPARK)
        jars = find_or_fetch(Cache.of_user())
        scratch = emptied(self.home / "tmp")
        # An empty folder: whatever the user's spark-defaults.conf says is not for this server.
        conf = emptied(self.home / "conf")
        properties = self.home / "spark.properties"
        write_private(properties, _as_properties(self._settings(jars, scratch)))
        home = ivy.pyspark_home()
        env = {
            **environment_without("SPARK_", "PYSPARK_", "HADOOP_", "AWS_", "LAKECTL_"),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_SCALA_VERSION": _SCALA,
            "SPARK_LOCAL_IP": LOOPBACK,
            "JAVA_HOME": str(executable.parents[1]),
            # Python workers need the client's packages: the interpreter that runs Perago has them.
            "PYSPARK_PYTHON": sys.executable,
        }
        return Command(_launch_command(executable, home, properties, env), env)

    def healthy(self) -> bool:
        # The port is opened last, when the session is there.
        return listens(self.port)

    def _settings(self, jars: Path, scratch: Path) -> dict[str, str]:
        return {
            "spark.app.name": "perago-dev",
            "spark.master": "local[*]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
            "spark.driver.extraClassPath": f"{jars}/*",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(self.home / "warehouse"),
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.authenticate.token": self._token,
            **s3a_settings(self._lakefs, scratch),
        }


def find_or_fetch(cache: Cache) -> Path:
    """The folder with the jars that pyspark lacks for LakeFS, fetched once into the cache."""
    return cache.obtain(f"spark-s3a-{VERSION}", lambda folder: ivy.retrieve(_REQUEST, folder))


def s3a_settings(lakefs: LakeFSEndpoint, scratch: Path) -> dict[str, str]:
    """Spark settings with which ``s3a://REPOSITORY/REF/PATH`` is LakeFS."""
    cloud = "org.apache.spark.internal.io.cloud"
    hadoop = {
        "fs.s3a.endpoint": lakefs.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": lakefs.access_key_id,
        "fs.s3a.secret.key": lakefs.secret_access_key,
        # Only the keys above: the default chain would look for AWS credentials on this machine.
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        ),
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.buffer.dir": str(scratch),
        # The default committer renames, which LakeFS can only do by copying the data.
        "fs.s3a.committer.name": "magic",
        "mapreduce.outputcommitter.factory.scheme.s3a": (
            "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
        ),
    }
    return {
        **{f"spark.hadoop.{key}": value for key, value in hadoop.items()},
        "spark.sql.sources.commitProtocolClass": f"{cloud}.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{cloud}.BindingParquetOutputCommitter",
    }


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
            hint="Check the Java installation named by JAVA_HOME, or use `--no-spark`.",
        ) from error
    # The launcher first ends a line of its own, then each argument with a NUL.
    return answer.stdout.decode().lstrip("\0\n").rstrip("\0").split("\0")


def _as_properties(settings: dict[str, str]) -> str:
    """Settings in Java's properties format, in which a backslash is an escape."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).replace("\\", "\\\\")
