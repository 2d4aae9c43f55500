"""The tasks that the worker tests run; what they do is in their params."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    TaskControls,
    TaskFailed,
    TimeoutPolicy,
    WorkspaceSpec,
    context,
    task,
)

OWNER = "tests@example.com"
LEASE_SECONDS = 3
PATIENT_SECONDS = 120
CONTROLS = TaskControls(
    retry=RetryPolicy(count=3, delay_seconds=0),
    timeout=TimeoutPolicy(response_seconds=LEASE_SECONDS),
)


class Params(BaseModel):
    """What a body does."""

    text: str = "new"
    seconds: float = 0.0
    do: str = ""
    # A folder in which the body leaves traces and waits for signs.
    signs: str = ""


class Result(BaseModel):
    """What a body returns."""

    note: str = ""
    pid: int = 0


def _act(params: Params) -> None:
    if params.signs:
        signs = Path(params.signs)
        with (signs / "runs").open("a") as runs:
            runs.write(f"{os.getpid()}\n")
        (signs / "in-body").touch()
    first = not params.signs or len((Path(params.signs) / "runs").read_text().splitlines()) == 1
    if params.do == "exit-first-time" and first:
        os._exit(7)
    if params.do == "sys-exit":
        sys.exit(3)
    if params.do == "fail":
        raise TaskFailed("on purpose")
    if params.do == "spawn-and-wait":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    if params.do in {"wait", "spawn-and-wait"} or (params.do == "wait-first-time" and first):
        deadline = time.monotonic() + 120
        while not (Path(params.signs) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    time.sleep(params.seconds)


def _tell() -> str:
    """Tell of progress, and what the context knows."""
    found = context()
    found.progress(1, 2)
    ids = f"{found.task} {found.task_id} {found.attempt_number}"
    return f"{ids} {found.seconds_left} {found.stopped}"


@task(
    name="w_write",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=CONTROLS,
)
def w_write(workspace: Path, params: Params) -> Result:
    """Write one file, then do as told."""
    (workspace / "out.txt").write_text(params.text)
    _act(params)
    note = _tell() if params.do == "tell" else params.text
    return Result(note=note, pid=os.getpid())


@task(
    name="w_deadline",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="data"),
    controls=TaskControls(
        retry=RetryPolicy(count=0, delay_seconds=0),
        timeout=TimeoutPolicy(response_seconds=LEASE_SECONDS, body_seconds=1.0),
    ),
)
def w_deadline(workspace: Path, params: Params) -> Result:
    """Has a deadline of one second."""
    _act(params)
    return Result()


@task(name="w_plain", owner_email=OWNER, controls=CONTROLS)
def w_plain(params: Params) -> Result:
    """Needs no workspace."""
    _act(params)
    return Result(note=params.text, pid=os.getpid())


@task(
    name="w_many",
    owner_email=OWNER,
    controls=TaskControls(timeout=TimeoutPolicy(response_seconds=PATIENT_SECONDS)),
)
def w_many(params: Params) -> Result:
    """The same with a lease that outlives a Conductor that stalls, as it does under load."""
    return w_plain(params)
