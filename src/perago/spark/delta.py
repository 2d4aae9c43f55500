"""Add Delta Lake to managed Spark when the extra ``delta`` is installed.

The installed Python package decides the version; Spark fetches the jars by their coordinates, as it
does for ``--packages``. Settings of the user for the same purpose are kept or extended.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from perago.servers.toolchain import spark_jars

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ARTIFACT = "io.delta:delta-spark_"


def installed_delta() -> str | None:
    """Return the version of the installed Python package; None without the extra."""
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        return None


def with_delta(conf: Mapping[str, str], delta: str | None) -> dict[str, str]:
    """Add what Delta needs to Spark settings; without Delta, change nothing."""
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


def _joined(given: str, added: str) -> str:
    return f"{given},{added}" if given else added
