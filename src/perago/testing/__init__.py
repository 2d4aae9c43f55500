"""Runs of tasks on files, in-memory fakes of the ports, and a proxy that fails on demand.

:func:`run_task` is for authors: it runs a task on files with no server.

The fakes need no server and no disk, start no threads and behave the same in every run. The
project's contract tests run the same cases against the fakes and against real servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perago.testing.clock import ManualClock
from perago.testing.conductor import InMemoryConductor, TaskSettings
from perago.testing.faults import (
    Faults,
    fails,
    followed_by,
    lands_late,
    lands_late_resolved,
    preceded_by,
    reply_lost,
    request_lost,
)
from perago.testing.http_faults import HttpFault
from perago.testing.lake import InMemoryLake
from perago.testing.objects import InMemoryObjects
from perago.testing.spark import InMemorySpark
from perago.testing.workspaces import InMemoryWorkspaces

if TYPE_CHECKING:
    from perago.testing.fault_proxy import FaultProxy
    from perago.testing.task_runs import Diff, TaskRun, TaskWorkspace, run_task

__all__ = [
    "Diff",
    "FaultProxy",
    "Faults",
    "HttpFault",
    "InMemoryConductor",
    "InMemoryLake",
    "InMemoryObjects",
    "InMemorySpark",
    "InMemoryWorkspaces",
    "ManualClock",
    "TaskRun",
    "TaskSettings",
    "TaskWorkspace",
    "fails",
    "followed_by",
    "lands_late",
    "lands_late_resolved",
    "preceded_by",
    "reply_lost",
    "request_lost",
    "run_task",
]

# Loaded when first asked for: they bring an HTTP server or the adapters along, which a simulation
# does not need.
_TASK_RUNS = frozenset({"Diff", "TaskRun", "TaskWorkspace", "run_task"})


def __getattr__(name: str) -> Any:
    if name == "FaultProxy":
        from perago.testing.fault_proxy import FaultProxy

        return FaultProxy
    if name in _TASK_RUNS:
        from perago.testing import task_runs

        return getattr(task_runs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
