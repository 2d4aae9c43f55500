"""Spark tasks that workers of the tests run."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    require_rows,
    task,
)


class Params(BaseModel):
    """Where the first run leaves its sign before it dies."""

    signs: str


class Result(BaseModel):
    """What was counted."""

    rows: int = 0


@task(
    name="s_copy",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="data", post=[require_rows("copy", min=1)]),
    controls=TaskControls(
        retry=RetryPolicy(count=2, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=10)
    ),
)
def s_copy(workspace: SparkWorkspace, params: Params) -> Result:
    """Copy a table; the first time, die in the middle of a long job."""
    sign = Path(params.signs) / "died"
    if not sign.exists():
        slow = "java_method('java.lang.Thread', 'sleep', cast(2000 AS BIGINT)) AS slept"
        frame = workspace.spark.range(0, 60, 1, 60).selectExpr("id", slow)
        target = workspace.output("slow")
        threading.Thread(target=lambda: frame.write.parquet(target), daemon=True).start()
        time.sleep(3)
        sign.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rows = workspace.read("raw")
    workspace.write(rows, "copy")
    return Result(rows=rows.count())
