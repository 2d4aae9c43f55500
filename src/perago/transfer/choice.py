"""Which engine moves a workspace: decided by size, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.partition import Load
from perago.transfer.port import Fetched, Plan, Source, TransferEngine


@dataclass(frozen=True, slots=True)
class Threshold:
    """From where on a workspace counts as large; 0 means that this one never decides."""

    objects: int
    size: int

    def __bool__(self) -> bool:
        return self.objects > 0 or self.size > 0

    def reached_by(self, load: Load) -> bool:
        return (0 < self.objects <= load.objects) or (0 < self.size <= load.size)


@dataclass(frozen=True, slots=True)
class ChosenBySize:
    """Small workspaces in this process, large ones with another engine."""

    small: TransferEngine
    large: TransferEngine
    threshold: Threshold

    @property
    def store(self) -> ObjectStore:
        return self.small.store

    def fetch(self, source: Source, listing: Iterator[RemoteObject], data: Path) -> Fetched:
        head, load = list[RemoteObject](), Load()
        for item in listing:
            head.append(item)
            load += Load(1, item.size)
            if self.threshold.reached_by(load):
                # The rest is never held here.
                return self.large.fetch(source, chain(_drained(head), listing), data)
        return self.small.fetch(source, iter(head), data)

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        """What changed may be little of much, or much of little: it decides for itself."""
        told = plan.summary()
        load = Load(told["uploads"] + told["deletes"], told["upload_bytes"])
        engine = self.large if self.threshold.reached_by(load) else self.small
        engine.stage(plan, staging, data)


def _drained(items: list[RemoteObject]) -> Iterator[RemoteObject]:
    """The items in order, each let go of when it is handed out."""
    items.reverse()
    while items:
        yield items.pop()
