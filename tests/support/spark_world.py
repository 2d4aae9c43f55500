"""A world of Spark tasks on real servers: real Parquet, real sessions, real commits."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perago import SparkWorkspace
from perago.protocol.job import Job, Ports, SparkPorts, WorkspaceUse
from perago.protocol.outcome import Failed, Outcome
from perago.protocol.ports import Lake
from perago.spark.executions import ConnectExecutions
from perago.spark.session import open_session
from perago.tasks.guardrails import Guardrail, check_spark
from support.real_world import Params, RealWorld, Result

Rows = list[dict[str, Any]]
EVENTS: Rows = [{"id": n, "user": f"u{n % 3}", "amount": n * 10} for n in range(6)]
# A parameter of the fixture `world`: which fixture gives the address of Spark.
ALSO_ON_A_CLUSTER = pytest.mark.parametrize(
    "world",
    [
        pytest.param("spark_remote", id="server"),
        pytest.param(
            "cluster_remote",
            marks=pytest.mark.slow,
            id="cluster",
        ),
    ],
    indirect=True,
)
SparkBody = Callable[[SparkWorkspace, Params], Any]


def clean(workspace: SparkWorkspace, params: Params) -> Result:
    """A body that writes a table from another one."""
    events = workspace.read("raw")
    workspace.write(events.where("amount > 0").drop("user"), "clean")
    return Result(note=params.text)


def do_nothing(workspace: SparkWorkspace, params: Params) -> Result:
    """A body that reads, and writes nothing."""
    workspace.read("raw").count()
    return Result(note=params.text)


CLEAN: Rows = [{"id": row["id"], "amount": row["amount"]} for row in EVENTS if row["amount"]]


@dataclass
class RealSparkWorld(RealWorld):
    """One repository with a small table at ``data/raw``."""

    remote: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.put_table("main", "data/raw/part-0.parquet", EVENTS)
        self.ref = self.commit("main", {})

    def put_table(
        self, branch: str, path: str, rows: Rows, schema: pa.Schema | None = None
    ) -> None:
        """One Parquet file, written without Spark."""
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema), buffer)
        upload = self.sdk.objects_api.upload_object
        upload(self.repository, branch, path, content=buffer.getvalue(), force=True)

    def spark_job(
        self,
        body: SparkBody = clean,
        *,
        prefix: str = "data",
        read_only: bool = False,
        pre: Sequence[Guardrail] = (),
        post: Sequence[Guardrail] = (),
        **changes: Any,
    ) -> Job:
        workspace = WorkspaceUse(
            prefix, read_only, partial(check_spark, pre), partial(check_spark, post), "spark"
        )
        return replace(Job(self.task_type, Params, Result, body, workspace), **changes)

    def ports(self, lake: Lake | None = None) -> Ports:
        executions = ConnectExecutions(self.objects, partial(open_session, self.remote))
        ports = super().ports(lake)
        assert ports.storage is not None
        spark = SparkPorts(executions, self.objects)
        return replace(ports, storage=replace(ports.storage, spark=spark))

    def paths(self, ref: str = "main", prefix: str = "") -> list[str]:
        return [item.key for item in self.objects.list(self.repository, ref, prefix)]

    def rows(self, path: str, ref: str = "main") -> Rows:
        """The rows of a table, read without Spark."""
        found: Rows = []
        for item in self.objects.list(self.repository, ref, f"{path}/"):
            if item.key.endswith(".parquet"):
                pieces = self.objects.read(self.repository, ref, item.key, item.size)
                table = pq.read_table(io.BytesIO(b"".join(pieces)))
                found += table.to_pylist()
        return sorted(found, key=lambda row: list(row.values()))

    def assert_at(self, ref: str) -> None:
        """The target is there, and nothing is left of any attempt."""
        assert self.history()[0] == ref
        self.assert_tidy()


def attempt(world: RealSparkWorld, body: SparkBody, **job: Any) -> Outcome:
    """Start a workflow and run one attempt of it."""
    world.start()
    outcome, _ = world.attempt(world.spark_job(body, **job))
    return outcome


def refused(world: RealSparkWorld, body: SparkBody, error: str, **job: Any) -> Failed:
    """An attempt that must fail with ``error`` and leave nothing anywhere."""
    outcome = attempt(world, body, **job)
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason.startswith(f"{error}: "), outcome.trace
    world.assert_at(world.ref)
    return outcome
