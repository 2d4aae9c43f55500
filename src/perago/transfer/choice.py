"""Which engine moves a workspace: decided by size, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.partition import Load
from perago.transfer.port import Fetched, ListedEngine, Plan, Source, TransferEngine


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

    small: ListedEngine
    large: TransferEngine
    threshold: Threshold

    @property
    def store(self) -> ObjectStore:
        return self.small.store

    def fetch(self, source: Source, data: Path) -> Fetched:
        listing = self._small_listing(source)
        if listing is None:
            # It lists again, in its own way: what was read so far is not held any longer.
            return self.large.fetch(source, data)
        return self.small.fetch_listed(source, listing, data)

    def _small_listing(self, source: Source) -> list[RemoteObject] | None:
        """The whole listing, or None as soon as it turns out to be a large one."""
        listing, load = list[RemoteObject](), Load()
        for item in source.listing(self.store):
            listing.append(item)
            load += Load(1, item.size)
            if self.threshold.reached_by(load):
                return None
        return listing

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        """What changed may be little of much, or much of little: it decides for itself."""
        told = plan.summary()
        load = Load(told["uploads"] + told["deletes"], told["upload_bytes"])
        engine = self.large if self.threshold.reached_by(load) else self.small
        engine.stage(plan, staging, data)
