"""On a standalone cluster whose Python has nothing of ours, what a session needs travels along."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.spark.client import SparkClient
from perago.spark.session import close_session
from support.cluster import StandaloneCluster
from support.real_world import RealWorld

pytestmark = [
    *[pytest.mark.spark, pytest.mark.servers, pytest.mark.slow],
    pytest.mark.timeout(400),
]

AUTHOR = """
from pydantic import BaseModel
from perago import task
class Price(BaseModel):
    cents: int
def in_euro(cents):
    return Price(cents=cents).cents / 100
def in_dollar(cents):
    import later_of_test
    return in_euro(cents) * later_of_test.RATE
"""


@pytest.fixture
def session(cluster_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session of a worker that was started with the author's module."""
    (tmp_path / "author_of_test.py").write_text(AUTHOR)
    (tmp_path / "later_of_test.py").write_text("RATE = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("author_of_test")
    opened = SparkClient(lambda: cluster_remote, ["author_of_test"]).open(uuid.uuid4().hex)
    yield opened
    close_session(opened)
    # Loaded modules are read for what they import, by the next test too.
    del sys.modules["author_of_test"]


def test_a_function_of_the_author_s_module_runs_where_only_pandas_and_pyarrow_are(
    session: Any, cluster: StandaloneCluster
) -> None:
    from pyspark.sql.functions import udf

    author = sys.modules["author_of_test"]
    rows = session.range(4).select(udf(author.in_euro, "double")("id").alias("euro")).collect()
    assert [row.euro for row in rows] == [0.0, 0.01, 0.02, 0.03]


def test_perago_and_compiled_packages_come_from_the_session_s_own_files(
    session: Any, cluster: StandaloneCluster
) -> None:
    def look(batches: Any) -> Any:
        import importlib
        import sys

        names = ("obstore", "perago.lakefs.objects")
        files = [importlib.import_module(name).__file__ for name in names]
        for batch in batches:
            yield type(batch).from_pydict({"place": [sys.executable, *files]})

    rows = session.range(1, numPartitions=1).mapInArrow(look, "place string").collect()
    interpreter, obstore, perago = (row.place for row in rows)
    assert interpreter == str(cluster.python)
    assert "/perago_packages-" in obstore
    assert "perago_modules.zip/perago" in perago
    assert all(str(cluster.folder) in place for place in (obstore, perago))


def test_a_session_that_was_sent_nothing_has_everything_too(
    session: Any, cluster_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.functions import udf

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("something was sent again")

    monkeypatch.setattr(type(session), "addArtifacts", refuse)
    # As another process of this worker opens it.
    clone = SparkClient(lambda: cluster_remote, ["author_of_test"]).open(uuid.uuid4().hex)
    try:
        # It imports a module that nothing has imported here.
        dollars = udf(sys.modules["author_of_test"].in_dollar, "double")
        rows = clone.range(2).select(dollars("id").alias("dollar")).collect()
    finally:
        close_session(clone)
    assert [row.dollar for row in rows] == [0.0, 0.02]
    assert "later_of_test" not in sys.modules


def test_executors_write_to_lakefs_and_read_it_back(session: Any, world: RealWorld) -> None:
    uri = f"s3a://{world.repository}/main/table"
    session.range(1000).repartition(2).write.parquet(uri)
    assert session.read.parquet(uri).count() == 1000
