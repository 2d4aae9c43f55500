"""What may be deleted of what executions leave in LakeFS. Pure: values in, a verdict out.

An execution that is over never comes back: its staging branch is named after it alone, a retry and
a rerun make their own. So a verdict, once reached, stays right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from perago.errors import MixedPublicationError, UnknownOutcomeError
from perago.names import COMMIT_ID, OPEN_STATUSES, REPLACED_PREFIX, WITHDRAWN_PREFIX
from perago.protocol.identity import StagingName, parse_staging_name
from perago.protocol.ports import AttemptSnapshot
from perago.protocol.record import Record, read_record
from perago.protocol.workspace import Commit

RETENTION = timedelta(days=7)

LostKind = Literal["replaced", "withdrawn"]
TAG_PREFIXES: dict[str, LostKind] = {REPLACED_PREFIX: "replaced", WITHDRAWN_PREFIX: "withdrawn"}
_KEPT = re.compile(
    rf"(?P<prefix>{'|'.join(TAG_PREFIXES)})(?P<day>\d{{8}})-(?P<commit>{COMMIT_ID})"
    r"(-(?P<fingerprint>[0-9a-f]{16}))?",
    re.ASCII,
)
_LOCAL_TASK = re.compile(r"local-(?P<started>\d{8}T\d{6}Z)-[0-9a-f]+", re.ASCII)
_LOCAL_TIME = "%Y%m%dT%H%M%SZ"
_EVIDENCE = (UnknownOutcomeError.__name__, MixedPublicationError.__name__)


@dataclass(frozen=True, slots=True)
class FoundBranch:
    """A branch as listed, with its HEAD."""

    repository: str
    name: str
    head: Commit
    committed: datetime


@dataclass(frozen=True, slots=True)
class FoundTag:
    """A tag as listed."""

    repository: str
    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """What the tag of a replaced or withdrawn commit says."""

    how: LostKind
    day: datetime
    # Of the logical task; a replaced commit's tag has none.
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class FoundStagingBranch:
    """A branch that an execution made; ``record`` is None until it committed there."""

    found: FoundBranch
    name: StagingName
    record: Record | None

    @property
    def task_id(self) -> str:
        return self.record.task_id if self.record else self.name.task_id

    @property
    def local_start(self) -> datetime | None:
        """When the local run that made this branch began; None for an attempt of Conductor's."""
        found = _LOCAL_TASK.fullmatch(self.task_id)
        return _parse(found["started"], _LOCAL_TIME) if found else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something may be deleted, and why or why not."""

    garbage: bool
    reason: str


def local_task_id(started: datetime, unique: str) -> str:
    """The task id of a local run. It carries the time, because no server can be asked for it."""
    return f"local-{started.astimezone(UTC).strftime(_LOCAL_TIME)}-{unique}"


def recognise(found: FoundBranch) -> FoundStagingBranch | None:
    """A staging branch by its name and, where the execution committed, by its record.

    Before its own commit the HEAD is the input, which carries another execution's record or none.
    """
    name = parse_staging_name(found.name)
    if name is None:
        return None
    record = read_record(found.head)
    if record is None or record.execution_id != name.execution_id:
        return FoundStagingBranch(found, name, None)
    if not name.is_of(record.task_id, record.retry_count, record.execution_id):
        return None
    return FoundStagingBranch(found, name, record)


def judge_staging(
    staging: FoundStagingBranch, task: AttemptSnapshot | None, now: datetime
) -> Verdict:
    """``task`` is what Conductor says of the attempt; None: it does not know the task."""
    if task is None:
        return Verdict(True, f"Conductor has no task {staging.task_id}{_age(staging, now)}")
    if task.status in OPEN_STATUSES:
        return _judge_waiting(staging, task, now)
    if (task.reason or "").startswith(_EVIDENCE) and staging.record is not None:
        return _judge_evidence(staging, now)
    return Verdict(True, f"its attempt is over: {task.status}{_age(staging, now)}")


def judge_local(started: datetime, now: datetime) -> Verdict:
    """A local run has no attempt: only time says that it is over."""
    age = f"made by a local run that began {_days(now - started)} ago"
    if now - started > RETENTION:
        return Verdict(True, age)
    return Verdict(False, f"{age}; kept for {RETENTION.days} days")


def judge_tag(tag: FoundTag, now: datetime) -> Verdict | None:
    """The tag of a replaced or withdrawn commit; None for a tag that is neither."""
    kept = read_tag(tag.name, tag.commit)
    if kept is None:
        return None
    age = (now.date() - kept.day.date()).days
    text = f"the commit was {kept.how} {age} days ago"
    if age > RETENTION.days:
        return Verdict(True, text)
    return Verdict(False, f"{text}; kept for {RETENTION.days} days")


def read_tag(name: str, commit: str) -> KeptCommit | None:
    """What a tag on ``commit`` keeps; None for a tag that Perago did not make."""
    found = _KEPT.fullmatch(name)
    day = _parse(found["day"], "%Y%m%d") if found else None
    if found is None or day is None or found["commit"] != commit:
        return None
    return KeptCommit(TAG_PREFIXES[found["prefix"]], day, found["fingerprint"])


def _judge_waiting(staging: FoundStagingBranch, task: AttemptSnapshot, now: datetime) -> Verdict:
    claim = staging.record.claim if staging.record else None
    if task.status == "IN_PROGRESS" and claim is not None and task.worker_id != claim:
        return Verdict(True, f"its attempt runs again under another claim{_age(staging, now)}")
    return Verdict(False, f"its attempt is {task.status}")


def _judge_evidence(staging: FoundStagingBranch, now: datetime) -> Verdict:
    age = now - staging.found.committed
    text = f"evidence of an unknown outcome, {_days(age)} old"
    if age > RETENTION:
        return Verdict(True, text)
    return Verdict(False, f"{text}; kept for {RETENTION.days} days")


def _age(staging: FoundStagingBranch, now: datetime) -> str:
    """How old the execution's own commit is; what is not committed carries no time."""
    if staging.record is None:
        return ""
    return f"; committed {_days(now - staging.found.committed)} ago"


def _days(age: timedelta) -> str:
    hours = max(age, timedelta()) // timedelta(hours=1)
    return f"{hours} hours" if hours < 48 else f"{hours // 24} days"


def _parse(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        return None
