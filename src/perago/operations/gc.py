"""Collecting garbage in LakeFS: first look at everything, then delete one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perago.conductor.client import ConductorAttempts
from perago.errors import BackendDeniedError, BackendError, BackendRefusedError, NotFoundError
from perago.lakefs.garbage import LakeFSGarbage, Removal
from perago.protocol.garbage import (
    FoundStagingBranch,
    Verdict,
    judge_local,
    judge_staging,
    judge_tag,
    recognise,
)
from perago.protocol.licences import withdrawn_tag


@dataclass(frozen=True, slots=True)
class GarbageItem:
    """Something an execution left, and what is to be done about it."""

    kind: Literal["branch", "tag"]
    repository: str
    name: str
    commit: str
    verdict: Verdict
    # Made before a branch is deleted: a request that it licensed may still be landing, and the
    # next execution of the task must know (docs/model.md).
    withdrawn_tag: str | None = None


@dataclass(frozen=True, slots=True)
class UnreadRepository:
    """A repository that could not be looked into."""

    repository: str
    error: BackendError


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of an item; ``error`` when it could not be deleted."""

    item: GarbageItem
    removal: Removal | Literal["failed"]
    error: BackendError | None = None


def survey(
    lake: LakeFSGarbage,
    attempts: ConductorAttempts,
    repositories: Sequence[str],
    now: datetime,
) -> Iterator[GarbageItem | UnreadRepository]:
    """Judge everything that executions left; nothing is changed.

    Raises when Conductor cannot be asked: without it nothing can be said to be over.
    """
    attempts.assert_answers()
    for repository in repositories or lake.repositories():
        try:
            branches, tags = list(lake.branches(repository)), list(lake.tags(repository))
        except (BackendDeniedError, BackendRefusedError) as error:
            yield UnreadRepository(repository, error)
            continue
        for branch in branches:
            staging = recognise(branch)
            if staging is not None:
                verdict = _judge(staging, attempts, now)
                commit = branch.head.id
                kept = withdrawn_tag(now.strftime("%Y%m%d"), commit, staging.name.fingerprint)
                yield GarbageItem("branch", repository, branch.name, commit, verdict, kept)
        for tag in tags:
            judged = judge_tag(tag, now)
            if judged is not None:
                yield GarbageItem("tag", repository, tag.name, tag.commit, judged)


def _judge(staging: FoundStagingBranch, attempts: ConductorAttempts, now: datetime) -> Verdict:
    if staging.local_start is not None:
        return judge_local(staging.local_start, now)
    try:
        task = attempts.read(staging.task_id)
    except NotFoundError:
        task = None
    return judge_staging(staging, task, now)


def collect(lake: LakeFSGarbage, items: Sequence[GarbageItem]) -> Iterator[Removed]:
    """Delete the garbage among ``items``; an error is reported and the next item follows."""
    for item in items:
        if not item.verdict.garbage:
            continue
        delete = lake.delete_branch if item.kind == "branch" else lake.delete_tag
        try:
            if item.withdrawn_tag is not None:
                lake.create_tag(item.repository, item.withdrawn_tag, item.commit)
            yield Removed(item, delete(item.repository, item.name, item.commit))
        except BackendError as error:
            yield Removed(item, "failed", error)
