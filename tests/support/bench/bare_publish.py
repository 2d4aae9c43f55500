"""The requests of the publication, made by a plain HTTP client and checked for nothing.

``shapes`` reduces requests to what they ask for, so that a test can see whether the step still
makes the requests that are made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from perago.connections import LakeFSConnection
from perago.protocol.ports import Delivery
from support.real_world import RealWorld

_PARTS = (
    (re.compile(r"\?.*"), ""),
    (re.compile(r"/api(/v1)?(?=/)"), ""),
    (re.compile(r"/repositories/[^/]+"), "/repositories/R"),
    (re.compile(r"[0-9a-f]{64}"), "COMMIT"),
    (re.compile(r"perago-staging[^/]*"), "STAGING"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "TASK"),
)


def shapes(requests: Iterable[tuple[str, str]]) -> list[str]:
    """Methods and paths without the names that differ each time."""
    found = []
    for method, path in requests:
        for pattern, name in _PARTS:
            path = pattern.sub(name, path)
        found.append(f"{method} {path}")
    return found


@dataclass
class BarePublish:
    """Two plain clients, whose connections stay open."""

    lakefs: httpx.Client
    conductor: httpx.Client

    @classmethod
    def on(cls, connection: LakeFSConnection, conductor: str) -> BarePublish:
        secret = connection.secret_access_key.get_secret_value()
        keys = (connection.access_key_id, secret)
        return cls(
            httpx.Client(base_url=connection.api, auth=keys, timeout=30, trust_env=False),
            httpx.Client(base_url=conductor, timeout=30, trust_env=False),
        )

    def close(self) -> None:
        self.lakefs.close()
        self.conductor.close()

    def publish(self, world: RealWorld, delivery: Delivery, staging: str, commit: str) -> str:
        """The second fence, the publish fence, the merge and the read-back; the new commit."""
        claim, repository = delivery.claim, f"/repositories/{world.repository}"
        task = f"/tasks/{claim.attempt.task_id}"
        renewal = {
            "workflowInstanceId": claim.attempt.workflow_instance_id,
            "taskId": claim.attempt.task_id,
            "workerId": claim.token,
            "status": "IN_PROGRESS",
            "extendLease": True,
        }
        self._ask(self.conductor, "GET", task)
        self._ask(self.conductor, "POST", "/tasks", renewal)
        self._ask(self.conductor, "GET", task)
        lake = self.lakefs
        self._ask(lake, "GET", f"{repository}/branches?prefix=perago-staging&amount=1000")
        self._ask(lake, "GET", f"{repository}/tags?prefix=perago-withdrawn&amount=1000")
        head = self._ask(lake, "GET", f"{repository}/branches/main").json()["commit_id"]
        self._ask(lake, "GET", f"{repository}/commits/{head}")
        self._ask(lake, "GET", f"{repository}/branches/main/diff?amount=1")
        body = {"message": "bench", "metadata": {"bench": "bench"}, "squash_merge": True}
        merge = f"{repository}/refs/{staging}/merge/main"
        merged = str(self._ask(lake, "POST", merge, body).json()["reference"])
        self._ask(lake, "GET", f"{repository}/commits/{merged}")
        self._ask(lake, "GET", f"{repository}/refs/{merged}/diff/{commit}?type=two_dot&amount=1")
        return merged

    def _ask(
        self, client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        return client.request(method, path, json=body).raise_for_status()
