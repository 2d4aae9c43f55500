"""``make demo``: one task through real LakeFS and Conductor, from input to published output.

Everything lives in a temporary folder and is gone afterwards; only what was built or fetched stays
in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import lakefs_sdk
from lakefs_sdk.client import LakeFSClient

from perago.dev import Endpoints, Stack

HERE = Path(__file__).parent
REPOSITORY = "demo"
TEXTS = {
    "fox": "the quick brown fox jumps over the lazy dog",
    "rose": "a rose is a rose is a rose",
    "sea": "the sea the sea the open sea",
}


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perago-demo-") as folder:
        say("1. starting LakeFS and Conductor (the first time, they are built and fetched)")
        with Stack.up(Path(folder) / "stack", spark=False) as stack:
            lake = connect(stack.endpoints)
            say("2. a LakeFS repository with three texts on branch main")
            ref = seed(lake)
            say(f"   input commit  {ref}")
            with worker(stack.endpoints, Path(folder)):
                say("3. a worker runs the task word_count; a workflow asks for it")
                output = run_workflow(stack.endpoints, ref)
            say(f"   task result   {output['result']}")
            published = output["workspace"]["ref"]
            say(f"   output commit {published}")
            say("4. what is on branch main now")
            show_branch(lake)
    say(f"done in {time.monotonic() - started:.0f} s")
    return 0


def connect(endpoints: Endpoints) -> LakeFSClient:
    lakefs = endpoints.lakefs
    return LakeFSClient(
        lakefs_sdk.Configuration(
            host=lakefs.endpoint,
            username=lakefs.access_key_id,
            password=lakefs.secret_access_key,
        )
    )


def seed(lake: LakeFSClient) -> str:
    """Make a repository, write the texts and commit them; the id of that commit."""
    lake.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(
            name=REPOSITORY, storage_namespace=f"local://{REPOSITORY}", default_branch="main"
        )
    )
    for name, text in TEXTS.items():
        path = f"library/texts/{name}.txt"
        lake.objects_api.upload_object(REPOSITORY, "main", path, content=text.encode())
    creation = lakefs_sdk.CommitCreation(message="three texts")
    return str(lake.commits_api.commit(REPOSITORY, "main", creation).id)


class worker:  # noqa: N801  reads as a verb where it is used
    """``perago start word_count`` as a process of its own, stopped at the end."""

    def __init__(self, endpoints: Endpoints, folder: Path) -> None:
        self._environment = {
            **os.environ,
            **endpoints.as_environment(),
            "PERAGO_WORKSPACE_ROOT": str(folder / "workspaces"),
        }
        self._log = (folder / "worker.log").open("w")

    def __enter__(self) -> None:
        perago = [sys.executable, "-m", "perago"]
        subprocess.run([*perago, "register", "word_count"], **self._options(), check=True)
        self._process = subprocess.Popen([*perago, "start", "word_count"], **self._options())

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        self._log.close()

    def _options(self) -> dict[str, Any]:
        return {"env": self._environment, "cwd": HERE, "stdout": self._log, "stderr": self._log}


def run_workflow(endpoints: Endpoints, ref: str) -> dict[str, Any]:
    """Start a workflow with one task and wait for its output."""
    workspace = {"repository": REPOSITORY, "branch": "main", "ref_type": "commit", "ref": ref}
    step = {
        "name": "word_count",
        "taskReferenceName": "count",
        "type": "SIMPLE",
        "inputParameters": {"workspace": workspace, "params": {"shortest": 2}},
    }
    definition = {"name": "demo", "version": 1, "schemaVersion": 2, "tasks": [step]}
    with httpx.Client(base_url=endpoints.conductor.server_url, timeout=20) as conductor:
        request = {"name": "demo", "version": 1, "workflowDef": definition}
        workflow_id = conductor.post("/workflow", json=request).raise_for_status().text
        workflow: dict[str, Any] = {"status": "RUNNING"}
        deadline = time.monotonic() + 120
        while workflow["status"] == "RUNNING" and time.monotonic() < deadline:
            time.sleep(0.3)
            workflow = conductor.get(f"/workflow/{workflow_id}").raise_for_status().json()
    if workflow["status"] != "COMPLETED":
        raise SystemExit(f"the workflow is {workflow['status']}: {workflow}")
    output: dict[str, Any] = workflow["tasks"][0]["outputData"]
    return output


def show_branch(lake: LakeFSClient) -> None:
    for commit in lake.refs_api.log_commits(REPOSITORY, "main").results:
        say(f"   {commit.id[:12]}  {commit.message}")
    counts = lake.objects_api.get_object(REPOSITORY, "main", "library/counts.json")
    say(f"   library/counts.json, {len(counts)} bytes: {' '.join(counts.decode().split())[:70]}…")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
