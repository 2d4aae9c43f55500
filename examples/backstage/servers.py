"""As much of LakeFS and Conductor as the demonstration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import lakefs_sdk
from lakefs_sdk.client import LakeFSClient

from perago.dev import Endpoints

BRANCH = "main"
# What every commit of a worker says about its attempt; see docs/transaction.md.
RETRY_COUNT = "perago.retry_count"
_ENDED = ("COMPLETED", "FAILED", "TIMED_OUT", "TERMINATED")


@dataclass(frozen=True, slots=True)
class Difference:
    """What one commit changed on another."""

    objects: int
    removed: int
    size: int


class Lake:
    """One repository with one branch."""

    def __init__(self, endpoints: Endpoints, repository: str) -> None:
        lakefs = endpoints.lakefs
        self.repository = repository
        self._client = LakeFSClient(
            lakefs_sdk.Configuration(
                host=lakefs.endpoint,
                username=lakefs.access_key_id,
                password=lakefs.secret_access_key,
            )
        )

    def create(self) -> None:
        creation = lakefs_sdk.RepositoryCreation(
            name=self.repository,
            storage_namespace=f"local://{self.repository}",
            default_branch=BRANCH,
        )
        self._client.repositories_api.create_repository(creation)

    def add(self, files: list[Path], prefix: str, message: str) -> str:
        """Put files below a prefix and commit them; the commit."""
        return self._add({f"{prefix}/{file.name}": file for file in files}, message)

    def add_tree(self, folder: Path, message: str) -> str:
        """Put everything below a folder at the same paths and commit it; the commit."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return self._add({file.relative_to(folder).as_posix(): file for file in files}, message)

    def _add(self, files: dict[str, Path], message: str) -> str:
        for key, file in files.items():
            self._client.objects_api.upload_object(
                self.repository, BRANCH, key, content=file.read_bytes()
            )
        creation = lakefs_sdk.CommitCreation(message=message)
        return str(self._client.commits_api.commit(self.repository, BRANCH, creation).id)

    def head(self) -> str:
        return str(self._client.branches_api.get_branch(self.repository, BRANCH).commit_id)

    def commit(self, ref: str) -> lakefs_sdk.Commit:
        return self._client.commits_api.get_commit(self.repository, ref)

    def history(self) -> list[lakefs_sdk.Commit]:
        """The branch's commits, the newest first."""
        return list(self._client.refs_api.log_commits(self.repository, BRANCH).results)

    def tags(self) -> dict[str, str]:
        """The commit of every tag."""
        found = self._client.tags_api.list_tags(self.repository).results
        return {tag.id: tag.commit_id for tag in found}

    def difference(self, before: str, after: str) -> Difference:
        """What ``after`` has that ``before`` has not, and the other way round."""
        changes = list(self._changes(before, after))
        written = [change for change in changes if change.type != "removed"]
        return Difference(
            objects=len(written),
            removed=len(changes) - len(written),
            size=sum(change.size_bytes or 0 for change in written),
        )

    def _changes(self, before: str, after: str) -> Iterator[lakefs_sdk.Diff]:
        offset = ""
        while True:
            page = self._client.refs_api.diff_refs(
                self.repository, before, after, after=offset, amount=1000, type="two_dot"
            )
            yield from page.results
            if not page.pagination.has_more:
                return
            offset = page.pagination.next_offset


class Conductor:
    """Workflows and their tasks."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._http = httpx.Client(base_url=endpoints.conductor.server_url, timeout=20)

    def start(self, definition: dict[str, Any], payload: dict[str, Any]) -> str:
        """Start a workflow; its id."""
        request = {
            "name": definition["name"],
            "version": definition["version"],
            "workflowDef": definition,
            "input": payload,
        }
        return self._http.post("/workflow", json=request).raise_for_status().text

    def workflow(self, workflow_id: str) -> dict[str, Any]:
        return self._get(f"/workflow/{workflow_id}")

    def task(self, task_id: str) -> dict[str, Any]:
        return self._get(f"/tasks/{task_id}")

    def look_now(self, workflow_id: str) -> None:
        """Conductor looks for leases that ran out about once a minute; this makes it look now."""
        self._http.put(f"/workflow/decide/{workflow_id}").raise_for_status()

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.get(path).raise_for_status().json()
        return answer


def has_ended(workflow: dict[str, Any]) -> bool:
    """Whether nothing more will happen in a workflow."""
    return workflow["status"] in _ENDED
