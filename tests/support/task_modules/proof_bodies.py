"""The tasks of the crash matrix and of the soak: each result tells which execution made it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from perago import PublishBudget, RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, task

OWNER = "tests@example.com"
LEASE_SECONDS = 8
RETRIES = 30


class Params(BaseModel):
    """For how long a body runs, and the folder in which it waits for a sign the first time."""

    seconds: float = 0.0
    signs: str = ""


class Result(BaseModel):
    """The token of the execution."""

    note: str


def _controls(recovery: Literal["replace", "adopt"]) -> TaskControls:
    return TaskControls(
        retry=RetryPolicy(count=RETRIES, delay_seconds=0),
        timeout=TimeoutPolicy(response_seconds=LEASE_SECONDS),
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=0.5,
            safety_margin_seconds=0.5,
            lakefs_merge_timeout_seconds=3,
            conductor_completion_timeout_seconds=3,
            heartbeat_interval_seconds=2,
            worker_shutdown_grace_seconds=10,
        ),
        recovery=recovery,
    )


def _wait_the_first_time(signs: Path) -> None:
    if (signs / "in-body").exists():
        return
    (signs / "in-body").touch()
    deadline = time.monotonic() + 120
    while not (signs / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def _write(workspace: Path, params: Params) -> Result:
    token = uuid.uuid4().hex
    (workspace / "a.txt").write_text(token)
    by = workspace / "by"
    by.mkdir(exist_ok=True)
    for earlier in by.iterdir():
        earlier.unlink()
    (workspace / "sub" / "b.txt").unlink(missing_ok=True)
    if params.signs:
        _wait_the_first_time(Path(params.signs))
    time.sleep(params.seconds)
    (by / f"{token}.txt").write_text(token)
    return Result(note=token)


@task(
    name="p_replace",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=_controls("replace"),
)
def p_replace(workspace: Path, params: Params) -> Result:
    """Is done anew by a retry."""
    return _write(workspace, params)


@task(
    name="p_adopt",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=_controls("adopt"),
)
def p_adopt(workspace: Path, params: Params) -> Result:
    """A retry takes over what a dead execution has published."""
    return _write(workspace, params)
