"""A Spark task on a gigabyte of Parquet against the bare Spark job that does the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lakefs_sdk
import pytest

from perago import (
    SparkWorkspace,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.connections import LakeFSConnection
from perago.protocol.outcome import Completed
from perago.servers.spark import ConnectSettings
from perago.spark.session import close_session, open_session
from support.bench.results import Book
from support.bench.rounds import Contestant, hold, level_memory, seconds_of
from support.bench.table import OURS
from support.connect import connect_server
from support.real_world import Params, Result
from support.spark_world import RealSparkWorld

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(3600)]

# 32 bytes of noise a row do not compress, so that this is a gigabyte of Parquet.
ROWS, FILES = 23_000_000, 8
# What a job writes: half of the rows, first to Spark's disk and then to that of LakeFS.
_WRITTEN = 1 << 30
BARE = "bare job"
CHECKED, CHECKED_MORE = f"{OURS}, two data guardrails", f"{OURS}, four data guardrails"
# Of one table, so that one pass over it is enough for all.
GUARDRAILS = (
    require_rows("clean", min=ROWS // 2),
    require_not_null("clean", ["id", "user"]),
    require_schema("clean", "id BIGINT, user STRING, gross DOUBLE", allow_extra=True),
    require_unique("clean", "id"),
)


@pytest.fixture(scope="session")
def spark_remote(
    connection: LakeFSConnection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server as workers start it: the embedded one is tuned for small jobs."""
    settings = ConnectSettings("bench", connection, "local[2]")
    with connect_server(tmp_path_factory.mktemp("spark"), settings) as server:
        yield server.remote


def transform(events: Any) -> Any:
    """Half of the rows, with a column more."""
    return events.where("id % 2 = 0").selectExpr("*", "amount * 1.19 AS gross")


def as_task(workspace: SparkWorkspace, params: Params) -> Result:
    workspace.write(transform(workspace.read("events")), "clean")
    return Result()


@pytest.mark.bench("spark-task")
def test_a_task_on_a_gigabyte(
    spark_world: RealSparkWorld, rounds: int, book: Book, tmp_path: Path
) -> None:
    world = spark_world
    session = open_session(world.remote, uuid.uuid4().hex)
    _write_events(session, f"s3a://{world.repository}/main/data/events")
    close_session(session)
    world.ref = world.commit("main", {})
    contestants: dict[str, Contestant] = {
        OURS: lambda _: _timed(_attempt(world, 0), tmp_path),
        CHECKED: lambda _: _timed(_attempt(world, 2), tmp_path),
        CHECKED_MORE: lambda _: _timed(_attempt(world, 4), tmp_path),
        BARE: lambda _: _timed(_bare(world), tmp_path),
    }
    # Java compiles what is run often: the first job takes twice as long as the next ones.
    contest = hold(rounds, contestants, warm_up=True)
    alone = contest.ratio(OURS, BARE, "job")
    checked = contest.ratio(CHECKED, BARE, "job")
    more = contest.ratio(CHECKED_MORE, OURS, "job")
    figures = {"alone": alone, "two data guardrails": checked, "four data guardrails": more}
    book.record("spark-task", contest, figures)


def _timed(run: Callable[[], None], folder: Path) -> dict[str, float]:
    level_memory(folder, _WRITTEN)
    return {"job": seconds_of(run)}


def _write_events(session: Any, uri: str) -> None:
    noise = "unhex(sha2(concat(id, 'noise'), 256)) AS noise"
    events = session.range(0, ROWS, 1, FILES).selectExpr(
        "id", "concat('user-', id % 100000) AS user", "(id % 1000) / 10 AS amount", noise
    )
    events.write.parquet(uri)


def _new_branch(world: RealSparkWorld) -> str:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    creation = lakefs_sdk.BranchCreation(name=name, source=world.ref)
    world.sdk.branches_api.create_branch(world.repository, creation)
    return name


def _bare(world: RealSparkWorld) -> Callable[[], None]:
    """The job alone, on a branch that is there; nothing is committed."""
    branch = _new_branch(world)

    def run() -> None:
        session = open_session(world.remote, uuid.uuid4().hex)
        events = session.read.parquet(f"s3a://{world.repository}/{world.ref}/data/events")
        transform(events).write.parquet(f"s3a://{world.repository}/{branch}/data/clean")
        close_session(session)

    return run


def _attempt(world: RealSparkWorld, guardrails: int) -> Callable[[], None]:
    """A whole attempt, from its claim to its report, published on a branch of its own."""
    target = _new_branch(world)
    job = world.spark_job(as_task, post=GUARDRAILS[:guardrails])
    world.start({"workspace": world.workspace(branch=target), "params": {}})

    def run() -> None:
        outcome, _ = world.attempt(job)
        assert isinstance(outcome, Completed), outcome

    return run
