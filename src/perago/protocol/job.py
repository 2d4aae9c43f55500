"""What the life cycle needs to know about a task, a worker's policy and the outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from perago.protocol.events import EventSink
from perago.protocol.ports import Attempts, Clock, Lake, Objects, SparkExecutions, Workspaces

Replacement = Literal["provenance", "head-state", "off"]

DEFAULT_MERGE_TIMEOUT_SECONDS = 60.0
# A merge whose HEAD is the merge base takes milliseconds; LakeFS retries its write up to ten times.
DEFAULT_LANDING_SECONDS = 5.0
RELOCATE_TIMEOUT_SECONDS = 30.0
# The small requests of publishing, each with a time limit of its own: reads, tags, the fence, the
# withdrawal of licences, the read-back; and the removal of the directory.
_SMALL_REQUESTS_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class WorkspaceUse:
    """How a task uses its workspace. The checks raise ``GuardrailViolation``.

    They get what the body gets: a folder (``Path``) or a Spark workspace.
    """

    prefix: str
    read_only: bool
    check_pre: Callable[[Any], None]
    check_post: Callable[[Any], None]
    kind: Literal["file", "spark"] = "file"
    # How many guardrails the checks run.
    pre_guardrails: int = 0
    post_guardrails: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A task, as the life cycle sees it. Without ``workspace`` the body takes params only."""

    name: str
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    body: Callable[..., Any]
    workspace: WorkspaceUse | None = None
    recovery: Literal["replace", "adopt"] = "replace"
    merge_timeout_seconds: float = DEFAULT_MERGE_TIMEOUT_SECONDS
    # The time that a merge may take in LakeFS once it has resolved its source.
    landing_seconds: float = DEFAULT_LANDING_SECONDS
    # For the record on commits: which code this is; None where it cannot be said.
    code_fingerprint: str | None = None
    perago_version: str | None = None

    @property
    def publish_window_seconds(self) -> float:
        """The time from the fence that lets an execution publish until its outcome.

        Requests have time limits of their own; this is for an execution that hangs all the same.
        Requests of withdrawn licences are waited for before the fence, and a lost reply after it.
        """
        moving = max(self.merge_timeout_seconds, RELOCATE_TIMEOUT_SECONDS)
        return moving + 2 * self.landing_seconds + _SMALL_REQUESTS_SECONDS

    @property
    def kind(self) -> Literal["file", "spark", "plain"]:
        return "plain" if self.workspace is None else self.workspace.kind


@dataclass(frozen=True, slots=True)
class Policy:
    """A worker's choices, from its configuration."""

    publish_fence: Literal["soft", "hard"] = "soft"
    replacement: Replacement = "provenance"
    # Patterns of repository/branch: the workspaces that a workflow may ask for.
    allowed_workspaces: tuple[str, ...] = ("*/*",)
    # Conductor's default limit for a task output is 3 MiB.
    max_output_bytes: int = 3_000_000
    # A recorded result lives in commit metadata, which every listing of commits carries.
    max_recorded_result_bytes: int = 16_384


@dataclass(frozen=True, slots=True)
class SparkPorts:
    """The ports that only Spark tasks use."""

    executions: SparkExecutions
    objects: Objects


@dataclass(frozen=True, slots=True)
class StoragePorts:
    """The ports that tasks with a workspace use."""

    lake: Lake
    workspaces: Workspaces
    # None where no task of the worker is a Spark task.
    spark: SparkPorts | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside that one attempt touches."""

    attempts: Attempts
    clock: Clock
    events: EventSink
    policy: Policy = field(default_factory=Policy)
    # None where no task of the worker has a workspace.
    storage: StoragePorts | None = None
