"""A client of a stack that knows nothing but the JSON object `perago dev up` prints.

Run as a program: ``python client.py FILE`` prints what it did as one JSON object.
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

_WORKFLOW = {
    "name": "smoke",
    "version": 1,
    "workflowDef": {
        "name": "smoke",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "dev@example.com",
        "tasks": [
            {
                "name": "wait_for_nobody",
                "taskReferenceName": "only",
                "type": "SIMPLE",
                "taskDefinition": {"name": "wait_for_nobody", "ownerEmail": "dev@example.com"},
            }
        ],
    },
}


def call(method: str, url: str, body: object = None, authorization: str | None = None) -> bytes:
    """One HTTP call with a JSON body."""
    headers = {"Content-Type": "application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())


def lakefs(stack: dict[str, Any], method: str, path: str, body: object = None) -> Any:
    """One call of the LakeFS API."""
    keys = stack["lakefs"]
    user = f"{keys['access_key_id']}:{keys['secret_access_key']}".encode()
    authorization = f"Basic {base64.b64encode(user).decode()}"
    return json.loads(call(method, f"{keys['endpoint']}/api/v1{path}", body, authorization))


def create_repository(stack: dict[str, Any], name: str) -> str:
    """Make a repository and return its id."""
    body = {"name": name, "storage_namespace": f"local://{name}", "default_branch": "main"}
    return str(lakefs(stack, "POST", "/repositories", body)["id"])


def start_workflow(stack: dict[str, Any]) -> str:
    """Start a workflow and return the status Conductor gives it."""
    root = stack["conductor"]["server_url"]
    workflow = call("POST", f"{root}/workflow", _WORKFLOW).decode()
    return str(json.loads(call("GET", f"{root}/workflow/{workflow}"))["status"])


def use_spark(stack: dict[str, Any], path: str) -> tuple[int, int]:
    """Count a range, then write it to LakeFS as Parquet and count what is read back."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(stack["spark"]["remote"]).getOrCreate()
    try:
        numbers = session.range(1000)
        numbers.write.parquet(path)
        return numbers.count(), session.read.parquet(path).count()
    finally:
        # A session left open is closed at the interpreter's exit, when the server may be gone:
        # the client then retries for minutes.
        session.stop()


if __name__ == "__main__":
    details = json.loads(Path(sys.argv[1]).read_text())
    did: dict[str, Any] = {
        "repository": create_repository(details, "smoke"),
        "workflow": start_workflow(details),
    }
    if details["spark"] is not None:
        did["spark"] = use_spark(details, "s3a://smoke/main/numbers")
    sys.stdout.write(json.dumps(did) + "\n")
