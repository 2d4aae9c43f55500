"""In-memory fakes of the ports, and a proxy that fails on demand before a real server.

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

__all__ = [
    "FaultProxy",
    "Faults",
    "HttpFault",
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


def __getattr__(name: str) -> Any:
    """Load the proxy when it is first asked for: it brings an HTTP server along."""
    if name != "FaultProxy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perago.testing.fault_proxy import FaultProxy

    return FaultProxy
