"""Who runs: logical task, attempt, claim and execution, each a value, never looked up elsewhere."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from perago.names import STAGING_PREFIX
from perago.text import shorten

_NOT_IN_A_BRANCH_ID = re.compile(r"[^0-9A-Za-z_-]+")
_MAX_BRANCH_ID = 240
# What the ids of Conductor and an execution leave for the reference.
_MAX_REFERENCE = 60


@dataclass(frozen=True, slots=True)
class LogicalTask:
    """One step of one workflow instance, whatever number of times it is tried."""

    workflow_instance_id: str
    reference_name: str
    iteration: int

    def __str__(self) -> str:
        return f"{self.workflow_instance_id}/{self.reference_name}/{self.iteration}"

    @property
    def fingerprint(self) -> str:
        """A short name that no other logical task has; staging branch names give it too."""
        return _fingerprint(self.staging_prefix, self.iteration)

    @property
    def staging_prefix(self) -> str:
        """What the staging branches of this task's executions begin with, in every iteration.

        The workflow instance is never cut. The reference gives way to the ids, with a hash.
        """
        workflow = _distinct_part(self.workflow_instance_id)
        reference = _abbreviate(_distinct_part(self.reference_name), _MAX_REFERENCE)
        return f"{STAGING_PREFIX}{workflow}-{reference}-seq-"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One Conductor task."""

    workflow_instance_id: str
    task_id: str
    retry_count: int
    reference_name: str
    seq: int = 0
    iteration: int = 0
    retried_task_id: str | None = None
    # Conductor's clock when this attempt was scheduled: orders attempts of a logical task even
    # across reruns and restarts, where the retry count starts anew.
    scheduled_ms: int = 0

    @property
    def logical(self) -> LogicalTask:
        return LogicalTask(self.workflow_instance_id, self.reference_name, self.iteration)


@dataclass(frozen=True, slots=True)
class Claim:
    """One delivery of an attempt to us; the token is the worker id of that one poll.

    Conductor reuses task ids on rerun and redelivers on requeue, so the attempt alone does not
    say whether it is still ours.
    """

    attempt: Attempt
    token: str


@dataclass(frozen=True, slots=True)
class Execution:
    """One actual run of a claim by one executor."""

    claim: Claim
    id: str

    @property
    def attempt(self) -> Attempt:
        return self.claim.attempt

    @property
    def staging_branch_name(self) -> str:
        """A branch id unique to this execution, at most 240 characters.

        It begins with :attr:`LogicalTask.staging_prefix`, by which later executions of the same
        logical task find it.
        """
        attempt = self.attempt
        name = (
            f"{attempt.logical.staging_prefix}{attempt.seq}-iteration-{attempt.iteration}"
            f"-task-id-{_branch_part(attempt.task_id)}-retry-{attempt.retry_count}"
            f"-exec-{_branch_part(self.id)}"
        )
        if len(name) > _MAX_BRANCH_ID:
            raise ValueError(
                f"the task id is too long for a branch name: {shorten(attempt.task_id, 81)}"
            )
        return name


_STAGING_NAME = re.compile(
    rf"(?P<prefix>{STAGING_PREFIX}[0-9A-Za-z_-]+-seq-)\d+-iteration-(?P<iteration>\d+)"
    r"-task-id-(?P<task_id>[0-9A-Za-z_-]+)-retry-(?P<retry_count>\d+)"
    r"-exec-(?P<execution_id>[0-9A-Za-z_-]+)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class StagingName:
    """The ids in the name of a staging branch, as far as a branch id can spell them."""

    # Of the logical task, but for the iteration.
    prefix: str
    iteration: int
    task_id: str
    retry_count: int
    execution_id: str

    def is_licence_of(self, task: LogicalTask) -> bool:
        """Whether an execution of this logical task has a staging branch of this name."""
        return (self.prefix, self.iteration) == (task.staging_prefix, task.iteration)

    @property
    def fingerprint(self) -> str:
        """That of the logical task."""
        return _fingerprint(self.prefix, self.iteration)

    def is_of(self, task_id: str, retry_count: int, execution_id: str) -> bool:
        """Whether an execution with these ids has a staging branch of this name."""
        spelled = (_branch_part(task_id), retry_count, _branch_part(execution_id))
        return spelled == (self.task_id, self.retry_count, self.execution_id)


def parse_staging_name(branch: str) -> StagingName | None:
    """Read a branch name back; None when no execution made it."""
    # The length first: matching takes more than linear time.
    found = _STAGING_NAME.fullmatch(branch) if len(branch) <= _MAX_BRANCH_ID else None
    if found is None:
        return None
    return StagingName(
        prefix=found["prefix"],
        iteration=int(found["iteration"]),
        task_id=found["task_id"],
        retry_count=int(found["retry_count"]),
        execution_id=found["execution_id"],
    )


def _fingerprint(prefix: str, iteration: int) -> str:
    return hashlib.sha256(f"{prefix}{iteration}".encode()).hexdigest()[:16]


def _branch_part(text: str) -> str:
    return _NOT_IN_A_BRANCH_ID.sub("-", text)


def _distinct_part(text: str) -> str:
    """A text as part of a branch id; two texts that would be spelled alike differ by a hash."""
    part = _branch_part(text)
    return part if part == text and part else f"{part}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _abbreviate(text: str, length: int) -> str:
    """Cut to ``length``; a hash of the whole keeps two long names apart."""
    if len(text) <= length:
        return text
    return f"{text[: length - 9]}-{_digest(text)}"
