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
from perago.testing.lake import InMemoryLake
from perago.testing.objects import InMemoryObjects
from perago.testing.spark import InMemorySpark
from perago.testing.workspaces import InMemoryWorkspaces

if TYPE_CHECKING:
    from perago.testing.fault_proxy import FaultProxy, HttpFault

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

# Loaded when first asked for: they bring an HTTP server along, which a simulation does not need.
_LAZY = frozenset({"FaultProxy", "HttpFault"})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perago.testing import fault_proxy

    return getattr(fault_proxy, name)
