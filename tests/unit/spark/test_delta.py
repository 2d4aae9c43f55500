"""What the extra ``delta`` adds to the settings of a worker's own Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.settings import Settings
from perago.spark.settings import (
    ManagedSpark,
    SparkOptions,
    installed_delta,
    resolve_spark,
    with_delta,
)
from support.connect import DELTA

LAKEFS = LakeFSConnection("http://127.0.0.1:1", "key", SecretStr("secret"))


@pytest.fixture
def _extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra were installed."""
    folder = tmp_path / "delta_spark-4.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: delta-spark\nVersion: 4.1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def resolved(*conf: str, packages: str | None = None) -> dict[str, str]:
    options = SparkOptions(conf=conf, packages=packages)
    spark = resolve_spark(Settings(), LAKEFS, options, {})
    assert isinstance(spark, ManagedSpark)
    return dict(spark.conf)


def test_without_the_extra_nothing_is_added() -> None:
    assert installed_delta() is None
    assert with_delta({"spark.x": "1"}, None) == {"spark.x": "1"}


@pytest.mark.usefixtures("_extra")
def test_with_the_extra_a_worker_s_spark_has_what_the_test_of_delta_tables_has() -> None:
    assert resolved() == DELTA


@pytest.mark.usefixtures("_extra")
def test_what_is_set_for_other_purposes_stays() -> None:
    found = resolved("spark.sql.extensions=org.example.Mine", packages="org.example:mine:1")
    assert found["spark.sql.extensions"] == f"org.example.Mine,{DELTA['spark.sql.extensions']}"
    assert found["spark.jars.packages"] == f"org.example:mine:1,{DELTA['spark.jars.packages']}"


@pytest.mark.usefixtures("_extra")
def test_what_is_set_for_delta_wins() -> None:
    own = "io.delta:delta-spark_4.1_2.13:4.3.0"
    catalog = "spark.sql.catalog.spark_catalog=org.example.Catalog"
    found = resolved(catalog, packages=own)
    assert found["spark.jars.packages"] == own
    assert found["spark.sql.catalog.spark_catalog"] == "org.example.Catalog"
