"""The port of a transfer engine, and the choice between two of them by size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from perago.protocol.workspace import StagingBranch
from perago.transfer.cache import ObjectCache
from perago.transfer.inventory import ObjectStore, RemoteObject, Source
from perago.transfer.partition import TransferSize
from perago.transfer.plan import SyncPlan


@runtime_checkable
class Plan(Protocol):
    """The deletes and uploads of staging; falsy when there are none."""

    def __bool__(self) -> bool: ...
    def summary(self) -> dict[str, int]:
        """Return the numbers of uploads, uploaded bytes, deletes and unchanged files."""
        ...

    def collect(self) -> SyncPlan:
        """Return the whole plan, in the memory of this process."""
        ...


class Fetched(Protocol):
    """A projection as it was right after its download."""

    def counts(self) -> dict[str, int]:
        """Return the numbers of downloaded objects and bytes."""
        ...

    def changes(self, body_started_ns: int) -> Plan:
        """Compare the data folder with the download; return what has to be staged."""
        ...


class TransferEngine(Protocol):
    """Downloads a projection into a folder, and stages the changes of that folder on a branch."""

    @property
    def store(self) -> ObjectStore: ...
    @property
    def cache(self) -> ObjectCache | None:
        """The cache that the engine fills; it also takes what a workspace leaves."""
        ...

    def fetch(self, source: Source, data: Path) -> Fetched:
        """List a projection, check its keys and download it.

        Raises ``ProjectionError`` for keys that cannot be files in the folder.
        """
        ...

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> dict[str, int]:
        """Apply a plan of any engine: deletes first, so that ``a`` can become ``a/b``.

        Returns counts beside those of the plan.
        """
        ...


class ListedEngine(TransferEngine, Protocol):
    """An engine that can also download a projection whose listing was read before."""

    def fetch_listed(self, source: Source, listing: Iterable[RemoteObject], data: Path) -> Fetched:
        """Check and download a projection that was listed already."""
        ...


@dataclass(frozen=True, slots=True)
class Threshold:
    """The size from which a workspace is large; a limit of 0 is ignored."""

    objects: int
    size: int

    def __bool__(self) -> bool:
        return self.objects > 0 or self.size > 0

    def reached_by(self, total: TransferSize) -> bool:
        """Return whether a size reaches one of the limits."""
        return (0 < self.objects <= total.objects) or (0 < self.size <= total.size)


@dataclass(frozen=True, slots=True)
class ChosenBySize:
    """Moves small workspaces with one engine and large ones with another."""

    small: ListedEngine
    large: TransferEngine
    threshold: Threshold

    @property
    def store(self) -> ObjectStore:
        return self.small.store

    @property
    def cache(self) -> ObjectCache | None:
        return self.small.cache

    def fetch(self, source: Source, data: Path) -> Fetched:
        listing = self._small_listing(source)
        if listing is None:
            # The other engine lists again, in its own way, without what was read so far.
            return self.large.fetch(source, data)
        return self.small.fetch_listed(source, listing, data)

    def _small_listing(self, source: Source) -> list[RemoteObject] | None:
        """Return the whole listing, or None as soon as it reaches the threshold."""
        listing, total = list[RemoteObject](), TransferSize()
        for item in source.listing(self.store):
            listing.append(item)
            total += TransferSize(1, item.size)
            if self.threshold.reached_by(total):
                return None
        return listing

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> dict[str, int]:
        """Stage with the engine for the size of the plan, whatever the workspace's size is."""
        summary = plan.summary()
        total = TransferSize(summary["uploads"] + summary["deletes"], summary["upload_bytes"])
        engine = self.large if self.threshold.reached_by(total) else self.small
        return engine.stage(plan, staging, data)
