"""Count what a soak found, from LakeFS and Conductor, once everything has settled."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

from soak.findings import Findings, Happened
from soak.fleet import Fleet, Running
from support.fault_matrix import Contents
from support.invariants import Inspector, Json


def collect(fleet: Fleet, happened: list[Happened], findings: Findings) -> None:
    """Check every workflow, then count what is left."""
    inspector, contents = Inspector(fleet.servers), Contents(fleet.servers)
    repository = fleet.site.world.repository
    left = inspector.staging_branches(repository)
    statuses: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for running in fleet.started:
        workflow = inspector.workflow(running.id)
        statuses[workflow["status"]] += 1
        attempts.update(task["status"] for task in workflow["tasks"])
        reasons.update(_reason(task) for task in workflow["tasks"] if _reason(task))
        findings.recovery_seconds += _recoveries(workflow["tasks"])
        wrong = inspector.violations(running.id, running.target, contents.check_tree, kept=left)
        findings.violations += [f"{_name(running)}: {text}" for text in wrong]
    findings.violations += fleet.problems
    findings.workflows = {"started": len(fleet.started), **statuses}
    findings.attempts, findings.reasons = dict(attempts), dict(reasons)
    findings.faults = dict(Counter(item.kind for item in happened))
    findings.happened = happened
    ended = (running.ended for running in fleet.started)
    findings.completed_at = sorted(round(at, 1) for at in ended if at is not None)
    findings.leftovers.staging_branches_before_gc = len(left)
    _collect_garbage(fleet, repository)
    findings.leftovers.staging_branches = len(inspector.staging_branches(repository))
    findings.leftovers.processes = len(fleet.processes_left())
    root = fleet.site.root
    findings.leftovers.folders = len(list(root.iterdir())) if root.exists() else 0


def _collect_garbage(fleet: Fleet, repository: str) -> None:
    """What crashes leave in LakeFS is `perago gc`'s to remove."""
    environment = {
        **fleet.site.environment(),
        **fleet.stack.endpoints.as_environment(),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "perago", "gc", "--repository", repository, "--yes"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if ended.returncode != 0:
        fleet.problems.append(f"perago gc ended with {ended.returncode}: {ended.stderr[-500:]}")


def _reason(task: Json) -> str:
    """The class of error that an attempt ended with."""
    if task["status"] == "COMPLETED":
        return ""
    reason = str(task.get("reasonForIncompletion") or task["status"])
    return reason.partition(":")[0] if reason.partition(":")[0].isidentifier() else task["status"]


def _recoveries(tasks: list[Json]) -> list[float]:
    found: list[float] = []
    for name in {task["referenceTaskName"] for task in tasks}:
        step = [task for task in tasks if task["referenceTaskName"] == name]
        failed = [_end(task) for task in step if task["status"] != "COMPLETED"]
        done = [_end(task) for task in step if task["status"] == "COMPLETED"]
        if failed and done:
            found.append(round(max(0.0, done[0] - min(failed)), 1))
    return found


def _end(task: dict[str, Any]) -> float:
    return float(task.get("endTime") or task["updateTime"]) / 1000


def _name(running: Running) -> str:
    return f"workflow {running.id} on {running.target.branch}"
