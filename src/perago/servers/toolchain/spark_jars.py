"""Fetch the jars that pyspark lacks for LakeFS: S3A, its AWS modules, and the committers."""

from __future__ import annotations

from pathlib import Path

from perago.servers.toolchain import ivy
from perago.servers.toolchain.cache import Cache

VERSION = "4.1.2"
SCALA = "2.13"
_HADOOP = "3.4.2"
_AWS_SDK = "2.29.52"
# The SDK's modules that S3A uses: 10 MB instead of the 640 MB bundle of every AWS service.
_AWS_MODULES = (
    "s3",
    "s3-transfer-manager",
    "sts",
    "apache-client",
    "netty-nio-client",
    "url-connection-client",
)
_ARTIFACT = f"spark-s3a-{VERSION}"
_REQUEST = ivy.FetchRequest(
    artifact=_ARTIFACT,
    title=f"fetch S3A for Spark {VERSION}",
    dependencies=(
        # Without its dependencies, the connectors of every cloud: only its committers are used.
        ivy.Coordinates("org.apache.spark", f"spark-hadoop-cloud_{SCALA}", VERSION),
        # Without its dependencies, too: they include the AWS bundle.
        ivy.Coordinates("org.apache.hadoop", "hadoop-aws", _HADOOP),
        *(
            ivy.Coordinates("software.amazon.awssdk", module, _AWS_SDK, transitive=True)
            for module in _AWS_MODULES
        ),
    ),
    # pyspark has these; a second version on the class path would conflict.
    excluded_organisations=(
        "io.netty",
        "org.slf4j",
        "commons-codec",
        "commons-logging",
        "org.apache.httpcomponents",
    ),
    expected_bytes=10_000_000,
    alternative="set SPARK_REMOTE to a Spark Connect server that has them "
    "(for the embedded stack: `perago dev up --no-spark`)",
)


def find_or_fetch(cache: Cache) -> Path:
    """Return the folder with the jars; fetch them once into the cache."""
    return cache.obtain(_ARTIFACT, lambda folder: ivy.retrieve(_REQUEST, folder))
