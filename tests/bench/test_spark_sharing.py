"""What attempts that share a Spark server cost each other, and what each session costs."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perago.connections import LakeFSConnection
from perago.protocol.outcome import Completed
from perago.servers.spark import ConnectSettings
from perago.spark.client import SparkClient
from perago.spark.session import POOL_SETTING, SHARES_MODULES, end_session, open_session
from support.bench.results import Book
from support.bench.rounds import Contestant, Value, hold, seconds_of
from support.bench.table import OURS
from support.connect import connect_server
from support.spark_world import RealSparkWorld, attempt, clean

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def spark_remote(
    connection: LakeFSConnection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server as workers start it."""
    settings = ConnectSettings("bench", connection, "local[2]", {SHARES_MODULES: "true"})
    with connect_server(tmp_path_factory.mktemp("spark"), settings) as server:
        yield server.remote


@pytest.fixture
def servers_of_sessions(
    spark_remote: str, connection: LakeFSConnection, tmp_path: Path
) -> Iterator[dict[str, SparkClient]]:
    """Clients of a server that has the worker's modules, and of one that must be sent them."""
    settings = ConnectSettings("bench", connection, "local[2]")
    with connect_server(tmp_path, settings) as server:
        yield {
            "on this machine": SparkClient(lambda: spark_remote, ()),
            "with modules for a cluster": SparkClient(lambda: server.remote, ()),
        }


@contextmanager
def long_job(remote: str) -> Iterator[None]:
    """Keep all cores busy with many tasks of another attempt's."""
    session: Any = open_session(remote, uuid.uuid4().hex)
    session.conf.set(POOL_SETTING, "another-executor")
    nap = "java_method('java.lang.Thread', 'sleep', cast(100 AS BIGINT)) AS slept"
    frame = session.range(0, 5000, 1, 5000).selectExpr("id", nap)
    running = threading.Thread(target=lambda: _run(frame), daemon=True)
    running.start()
    time.sleep(3.0)
    try:
        yield
        assert running.is_alive()
    finally:
        end_session(session)
        running.join(60)


def _run(frame: Any) -> None:
    try:
        frame.selectExpr("count(slept)").collect()
    except Exception:  # noqa: BLE001  it is interrupted at the end
        return


def timed_attempt(world: RealSparkWorld) -> dict[str, float]:
    def run() -> None:
        assert isinstance(attempt(world, clean), Completed)

    found = {"attempt": seconds_of(run)}
    world.ref = world.history()[0]
    return found


@pytest.mark.bench("spark-sharing")
def test_a_short_attempt_beside_a_long_one(
    spark_world: RealSparkWorld, rounds: int, book: Book
) -> None:
    def beside(_: int) -> dict[str, float]:
        with long_job(spark_world.remote):
            return timed_attempt(spark_world)

    contestants: dict[str, Contestant] = {
        f"{OURS}, beside a long job": beside,
        OURS: lambda _: timed_attempt(spark_world),
    }
    contest = hold(rounds, contestants, warm_up=True)
    ratio = contest.ratio(f"{OURS}, beside a long job", OURS, "attempt")
    book.record("spark-sharing", contest, {"beside": ratio})


@pytest.mark.bench("spark-session")
def test_opening_a_session(
    servers_of_sessions: dict[str, SparkClient], rounds: int, book: Book
) -> None:
    def opened(client: SparkClient) -> dict[str, float]:
        began = time.perf_counter()
        session = client.open(uuid.uuid4().hex)
        seconds = time.perf_counter() - began
        end_session(session)
        return {"opening": seconds}

    def contestant(client: SparkClient) -> Contestant:
        return lambda _: opened(client)

    clients = {f"{OURS}, {name}": client for name, client in servers_of_sessions.items()}
    contest = hold(rounds, {name: contestant(it) for name, it in clients.items()}, warm_up=True)
    figures: dict[str, Value | None] = {
        name: contest.middle("opening", f"{OURS}, {name}") for name in servers_of_sessions
    }
    book.record("spark-session", contest, figures)
