"""Tasks for local runs. Files beside the workspace let a test steer a body."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from perago import (
    InputSpec,
    PublishBudget,
    TaskControls,
    TaskFailed,
    TaskTerminalError,
    WorkspaceSpec,
    require_file,
    task,
)

OWNER = "tests@example.com"


class Params(BaseModel):
    text: str = "new"
    do: str = "write"
    wait_for: str = ""


class Result(BaseModel):
    length: int


def act(workspace: Path, params: Params) -> Result:
    if params.wait_for:
        marker = Path(params.wait_for)
        marker.with_suffix(".waiting").touch()
        while not marker.exists():
            time.sleep(0.02)
    match params.do:
        case "fail":
            raise TaskFailed("not today")
        case "terminal":
            raise TaskTerminalError("not ever")
        case "bug":
            raise KeyError("missing")
        case "exit":
            sys.exit(7)
        case "nothing":
            return Result(length=0)
        case "wrong":
            return {"size": 1}  # type: ignore[return-value]
        case "link":
            (workspace / "link").symlink_to("a.txt")
        case "remove":
            (workspace / "a.txt").unlink()
        case "print":
            print("noise from python")
            subprocess.run(["/bin/echo", "noise from a child"], check=True)
    if params.do != "remove":
        (workspace / "a.txt").write_text(params.text)
    return Result(length=len(params.text))


@task(
    name="writer",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix="data", pre=[require_file("a.txt")], post=[require_file("a.txt")]
    ),
    controls=TaskControls(
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=0.5,
            safety_margin_seconds=0.5,
            lakefs_merge_timeout_seconds=2,
            conductor_completion_timeout_seconds=5,
            heartbeat_interval_seconds=1,
            worker_shutdown_grace_seconds=10,
        )
    ),
)
def writer(workspace: Path, params: Params) -> Result:
    """Write a file, or do what a test asks for."""
    return act(workspace, params)


@task(name="reader", owner_email=OWNER, workspace=WorkspaceSpec(prefix="data", read_only=True))
def reader(workspace: Path, params: Params) -> Result:
    """The same, but publish nothing."""
    return act(workspace, params)


@task(
    name="joiner",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix="data",
        inputs={"other": InputSpec(os.environ.get("OTHER_REPOSITORY"), "data", branch="side")},
        post=[require_file("never.txt", severity="warn")],
    ),
)
def joiner(workspace: Path, params: Params, inputs: Mapping[str, Path]) -> Result:
    """Write what an input says."""
    params.text = (inputs["other"] / "a.txt").read_text()
    return act(workspace, params)


@task(name="adder", owner_email=OWNER)
def adder(params: Params) -> Result:
    """Needs no workspace."""
    return Result(length=len(params.text))
