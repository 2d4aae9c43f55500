"""The protocol's invariants, checked from LakeFS and Conductor alone (docs/protocol.md, 11)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from perago.names import STAGING_PREFIX
from support.real_world import Servers

Json = dict[str, Any]
# Takes the repository, a commit that a step put out and the step's result; returns what is wrong.
CheckContent = Callable[[str, str, Json], list[str]]


@dataclass(frozen=True)
class Target:
    """A branch that one workflow writes, and the commit it started from."""

    repository: str
    branch: str
    ref: str


class Inspector:
    """Reads what the servers hold, past every proxy, and names what must not be."""

    def __init__(self, servers: Servers) -> None:
        self._sdk, self._http = servers.sdk, servers.http

    def workflow(self, workflow_id: str) -> Json:
        answer = self._http.get(f"/workflow/{workflow_id}", params={"includeTasks": "true"})
        found: Json = answer.raise_for_status().json()
        return found

    def head(self, target: Target) -> str:
        found = self._sdk.branches_api.get_branch(target.repository, target.branch)
        return str(found.commit_id)

    def first_parent(self, repository: str, commit: str) -> str | None:
        parents = self._sdk.commits_api.get_commit(repository, commit).parents
        return str(parents[0]) if parents else None

    def staging_branches(self, repository: str, containing: str = "") -> list[str]:
        found: list[str] = []
        after = ""
        while True:
            page = self._sdk.branches_api.list_branches(
                repository, prefix=STAGING_PREFIX, after=after, amount=1000
            )
            found += [str(branch.id) for branch in page.results if containing in str(branch.id)]
            if not page.pagination.has_more:
                return found
            after = page.pagination.next_offset

    def unused_branches(self, repository: str, workflow_id: str, ref: str) -> list[str]:
        """The staging branches of a workflow that are at the input: nothing was committed."""
        names = self.staging_branches(repository, workflow_id)
        return [name for name in names if self.head(Target(repository, name, ref)) == ref]

    def violations(
        self,
        workflow_id: str,
        target: Target,
        check_content: CheckContent,
        *,
        kept: Collection[str] = (),
    ) -> list[str]:
        """Everything that is wrong after a workflow has ended.

        ``kept`` are the staging branches that an execution said to have kept as evidence.
        """
        workflow = self.workflow(workflow_id)
        if workflow["status"] != "COMPLETED":
            reasons = [
                f"{task['status']}: {task.get('reasonForIncompletion')}"
                for task in workflow["tasks"]
            ]
            why = workflow.get("reasonForIncompletion")
            return [f"the workflow is {workflow['status']} ({why}): {reasons}"]
        wrong, at = self._walk(workflow["tasks"], target, check_content)
        head = self.head(target)
        if head != at:
            wrong.append(f"HEAD is {head}, and the last completed step put out {at}")
        if self._sdk.branches_api.diff_branch(target.repository, target.branch, amount=1).results:
            wrong.append("the target has uncommitted changes")
        left = set(self.staging_branches(target.repository, workflow_id)) - set(kept)
        return wrong + [f"staging branch {branch} is left" for branch in sorted(left)]

    def _walk(
        self, tasks: list[Json], target: Target, check_content: CheckContent
    ) -> tuple[list[str], str]:
        """Follow the completed steps from the input; what is wrong, and the last output."""
        wrong: list[str] = []
        at = target.ref
        seen: set[str] = set()
        for task in sorted(tasks, key=lambda task: int(task["seq"])):
            name = task["referenceTaskName"]
            if task["status"] != "COMPLETED":
                continue
            if name in seen:
                wrong.append(f"step {name} completed twice")
            seen.add(name)
            given = task["inputData"]["workspace"]["ref"]
            made = task["outputData"]["workspace"]["ref"]
            if given != at:
                wrong.append(f"step {name} started from {given}, not from {at}")
            if made != given and self.first_parent(target.repository, made) != given:
                wrong.append(f"step {name} put out {made}, which does not sit on {given}")
            wrong += check_content(target.repository, made, task["outputData"]["result"])
            at = made
        missing = {task["referenceTaskName"] for task in tasks} - seen
        return wrong + [f"step {name} never completed" for name in sorted(missing)], at
