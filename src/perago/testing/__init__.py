"""In-memory fakes of the ports, for tests of tasks, of this project and of simulations.

They need no server and no disk, start no threads and behave the same in every run. The project's
contract tests run the same cases against the fakes and against real servers.
"""

from __future__ import annotations

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
from perago.testing.lake import InMemoryLake
from perago.testing.objects import InMemoryObjects
from perago.testing.spark import InMemorySpark
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
