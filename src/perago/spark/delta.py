"""Delta Lake for a worker's own Spark: there when the extra ``delta`` is installed.

The Python package says which version; its jars come by their coordinates, as ``--packages`` does
it. Whatever a user has set for the same purpose wins or is added to.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from perago.servers.toolchain import spark_jars

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ARTIFACT = "io.delta:delta-spark_"


def installed_delta() -> str | None:
    """The version of the installed Python package; None without the extra."""
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        return None


def with_delta(conf: Mapping[str, str], delta: str | None) -> dict[str, str]:
    """Spark settings with what Delta needs; unchanged without it."""
    if delta is None:
        return dict(conf)
    packages = conf.get("spark.jars.packages", "")
    extensions = conf.get("spark.sql.extensions", "")
    if _ARTIFACT not in packages:
        spark = ".".join(version("pyspark").split(".")[:2])
        packages = _joined(packages, f"{_ARTIFACT}{spark}_{spark_jars.SCALA}:{delta}")
    if _EXTENSION not in extensions:
        extensions = _joined(extensions, _EXTENSION)
    return {
        "spark.sql.catalog.spark_catalog": _CATALOG,
        **conf,
        "spark.jars.packages": packages,
        "spark.sql.extensions": extensions,
    }


def _joined(given: str, ours: str) -> str:
    return f"{given},{ours}" if given else ours
