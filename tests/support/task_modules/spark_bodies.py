"""Tasks that workers of the Spark tests run; what they do is in their params."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

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

OWNER = "tests@example.com"
# In the slow table: so many tasks of a second each.
SLOW_TASKS = 24


class Params(BaseModel):
    """What a body does, and where it leaves signs of it."""

    do: str = ""
    signs: str = ""


class Result(BaseModel):
    """What was counted."""

    rows: int = 0


def _controls(**timeouts: Any) -> TaskControls:
    return TaskControls(
        retry=RetryPolicy(count=2, delay_seconds=0),
        timeout=TimeoutPolicy(response_seconds=10, **timeouts),
    )


def _is_first(params: Params) -> bool:
    sign = Path(params.signs) / "begun"
    first = not sign.exists()
    sign.touch()
    return first


def _write_slowly(workspace: SparkWorkspace) -> None:
    """A job of some seconds, whose tasks write one after the other.

    What they sleep for is written too: Spark leaves out a column that nobody wants.
    """
    nap = "java_method('java.lang.Thread', 'sleep', cast(1000 AS BIGINT)) AS slept"
    frame = workspace.spark.range(0, SLOW_TASKS, 1, SLOW_TASKS).selectExpr("id", nap)
    workspace.write(frame, "slow")


@task(
    name="s_copy",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data", post=[require_rows("copy", min=1)]),
    controls=_controls(),
)
def s_copy(workspace: SparkWorkspace, params: Params) -> Result:
    """Copy a table; the first time, perhaps in the middle of a long job, do as told."""
    if params.do and _is_first(params):
        # Its first job takes longest: after it, the next begins at once.
        workspace.read("raw").count()
        threading.Thread(target=_write_slowly, args=(workspace,), daemon=True).start()
        time.sleep(3)
        if params.do == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(params.signs) / "in-body").touch()
        time.sleep(120)
    rows = workspace.read("raw")
    workspace.write(rows, "copy")
    return Result(rows=rows.count())


@task(
    name="s_deadline",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=_controls(body_seconds=4.0),
)
def s_deadline(workspace: SparkWorkspace, params: Params) -> Result:
    """Has a deadline that only its first run misses."""
    if _is_first(params):
        _write_slowly(workspace)
    return Result()


@task(
    name="s_slow",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data", post=[require_rows("slow", min=SLOW_TASKS)]),
    controls=_controls(),
)
def s_slow(workspace: SparkWorkspace, params: Params) -> Result:
    """Write a table that takes a while, in the open."""
    (Path(params.signs) / "in-body").touch()
    _write_slowly(workspace)
    return Result(rows=SLOW_TASKS)


@task(
    name="s_greedy",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data", read_only=True),
    controls=_controls(),
)
def s_greedy(workspace: SparkWorkspace, params: Params) -> Result:
    """The first time, ask for more than the server can hold."""
    if _is_first(params):
        workspace.spark.range(0, 200_000_000, 1, 4).toPandas()
    return Result()


@task(
    name="f_rewrite",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=_controls(),
)
def f_rewrite(workspace: Path, params: Params) -> Result:
    """A file task: change every other text, remove every third, add one per text."""
    if params.do == "die" and _is_first(params):
        os.kill(os.getpid(), signal.SIGKILL)
    texts = sorted(workspace.glob("many/*.txt"))
    for number, text in enumerate(texts):
        (workspace / "new").mkdir(exist_ok=True)
        (workspace / "new" / text.name).write_text(f"from {text.read_text()}")
        if number % 3 == 0:
            text.unlink()
        elif number % 2 == 0:
            text.write_text("changed")
    return Result(rows=len(texts))
