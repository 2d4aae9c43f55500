"""What a workspace needs from an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import (
    ObjectStore,
    RemoteObject,
    Source,
)
from perago.transfer.partition import TransferSize
from perago.transfer.plan import SyncPlan


@runtime_checkable
class Plan(Protocol):
    """What staging has to do; falsy when that is nothing."""

    def __bool__(self) -> bool: ...
    def summary(self) -> dict[str, int]: ...
    def collect(self) -> SyncPlan:
        """The whole plan in this process."""
        ...


class Fetched(Protocol):
    """A projection as it was right after its download."""

    def counts(self) -> dict[str, int]:
        """Objects and bytes that came."""
        ...

    def changes(self, body_started_ns: int) -> Plan:
        """Compare the data folder with it."""
        ...


class TransferEngine(Protocol):
    """Moves a projection into a folder, and what changed there to a branch."""

    @property
    def store(self) -> ObjectStore: ...
    def fetch(self, source: Source, data: Path) -> Fetched:
        """List a projection, look at every key of it, and download it."""
        ...

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        """Carry out a plan, of any engine: deletes first, so that ``a`` can become ``a/b``."""
        ...


class ListedEngine(TransferEngine, Protocol):
    """An engine that also takes a listing that somebody has read already."""

    def fetch_listed(
        self, source: Source, listing: Iterable[RemoteObject], data: Path
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True)
class Threshold:
    """From where on a workspace counts as large; 0 means that this one never decides."""

    objects: int
    size: int

    def __bool__(self) -> bool:
        return self.objects > 0 or self.size > 0

    def reached_by(self, load: TransferSize) -> bool:
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
        listing, load = list[RemoteObject](), TransferSize()
        for item in source.listing(self.store):
            listing.append(item)
            load += TransferSize(1, item.size)
            if self.threshold.reached_by(load):
                return None
        return listing

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        """What changed may be little of much, or much of little: it decides for itself."""
        told = plan.summary()
        load = TransferSize(told["uploads"] + told["deletes"], told["upload_bytes"])
        engine = self.large if self.threshold.reached_by(load) else self.small
        engine.stage(plan, staging, data)
