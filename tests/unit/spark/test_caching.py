"""What a session cached is freed, with pyspark's own client and nothing behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from perago.spark.caching import SessionCache, free_cached
from perago.spark.session import _connect, forget
from perago.spark.statements import read_cached


class Server:
    """Stands for the server: keeps what it was asked for, and fails where it is told to."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.statements: list[str] = []
        self.fails = False

    def analyze(self, method: str, **_: Any) -> None:
        self.frames.append(method)
        if self.fails:
            raise RuntimeError("no")

    def execute(self, command: Any, *_: Any, **__: Any) -> tuple[None, dict[str, Any], None]:
        self.statements.append(command.sql_command.input.sql.query)
        if self.fails:
            raise RuntimeError("no")
        return None, {}, None

    def fetch(self, plan: Any, *_: Any, **__: Any) -> tuple[pa.Table, None, None]:
        self.statements.append(plan.root.catalog.WhichOneof("cat_type"))
        return pa.table({}), None, None


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def session(server: Server) -> Iterator[SparkSession]:
    opened = _connect("sc://localhost:1", "e")
    client: Any = opened.client
    client._analyze, client.execute_command, client.to_table = (
        server.analyze,
        server.execute,
        server.fetch,
    )
    client.get_configs = lambda *_: ("-1", "NONE")
    SessionCache(opened)
    yield opened
    forget(opened)


def test_each_frame_is_freed_once_unless_the_body_did_so(
    session: SparkSession, server: Server
) -> None:
    kept, freed = session.range(3), session.range(4)
    for frame in (kept, kept, freed):
        frame.cache()
    freed.unpersist()
    server.frames.clear()
    assert free_cached(session) == 1
    assert server.frames == ["unpersist"]
    assert free_cached(session) == 0


def test_tables_cached_by_sql_and_by_the_catalog_are_freed_by_their_names(
    session: SparkSession, server: Server
) -> None:
    session.sql("CACHE LAZY TABLE daily AS SELECT 1")
    session.sql("CACHE TABLE hourly AS SELECT * FROM {frame}", frame=session.range(3))
    session.catalog.cacheTable("odd.`na``me`")
    server.statements.clear()
    assert free_cached(session) == 3
    assert server.statements == [
        "UNCACHE TABLE IF EXISTS `daily`",
        "UNCACHE TABLE IF EXISTS `hourly`",
        "UNCACHE TABLE IF EXISTS `odd`.`na``me`",
    ]


def test_what_cannot_be_freed_stops_nothing(session: SparkSession, server: Server) -> None:
    session.range(3).cache()
    session.range(4).persist()
    session.sql("cache table t")
    server.fails = True
    assert free_cached(session) == 3
    assert server.frames.count("unpersist") == 2
    assert free_cached(session) == 0


def test_a_session_of_another_origin_has_nothing_to_free() -> None:
    other = _connect("sc://localhost:1", "e")
    assert free_cached(other) == 0
    forget(other)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CACHE TABLE a.b", [("a", "b")]),
        ("/* x */ cache lazy table `t` OPTIONS ('storageLevel' 'DISK_ONLY')", [("t",)]),
        ("SELECT 'CACHE TABLE t'", []),
        ("UNCACHE TABLE t", []),
        ("SELECT cache FROM table", []),
        ("CACHE", []),
    ],
)
def test_statements_that_cache_are_recognised(text: str, names: list[tuple[str, ...]]) -> None:
    assert read_cached(text) == names
