"""In-memory fakes of the ports, for tests of tasks, of this project and of simulations.

They need no server and no disk, do nothing by themselves and are the same in every run. The
project's contract tests hold them to what real servers do.
"""

from __future__ import annotations

from perago.testing.clock import ManualClock
from perago.testing.conductor import InMemoryConductor
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
from perago.testing.lake import InMemoryLake
from perago.testing.objects import InMemoryObjects
from perago.testing.spark import InMemorySpark
from perago.testing.workflows import TaskSettings
from perago.testing.workspaces import InMemoryWorkspaces

__all__ = [
    "Faults",
    "InMemoryConductor",
    "InMemoryLake",
    "InMemoryObjects",
    "InMemorySpark",
    "InMemoryWorkspaces",
    "ManualClock",
    "TaskSettings",
    "fails",
    "followed_by",
    "lands_late",
    "lands_late_resolved",
    "preceded_by",
    "reply_lost",
    "request_lost",
]
