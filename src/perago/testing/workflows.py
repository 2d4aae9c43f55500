"""What an in-memory Conductor stores: workflows of one task, and that task's attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perago.protocol.identity import Attempt


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a TaskDef says about retries and leases."""

    task_type: str
    retry_count: int = 3
    retry_delay_seconds: float = 0.0
    response_timeout_seconds: float = 60.0


@dataclass(slots=True)
class Task:
    """One attempt, as Conductor stores it."""

    attempt: Attempt
    status: str = "SCHEDULED"
    worker_id: str | None = None
    updated_at: float = 0.0
    available_at: float = 0.0
    queued: bool = True
    output: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    logs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Workflow:
    """A workflow instance of one task: its attempts, oldest first."""

    id: str
    settings: TaskSettings
    payload: dict[str, Any]
    reference_name: str
    iteration: int
    status: str = "RUNNING"
    ended_before: bool = False
    tasks: list[Task] = field(default_factory=list)
