"""What a workspace needs from an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import (
    ObjectStore,
    RemoteObject,
    is_action,
    listing_prefix,
    projected,
)
from perago.transfer.plan import SyncPlan
from perago.transfer.units import WHOLE, Unit


@dataclass(frozen=True, slots=True)
class Source:
    """A projection at a commit."""

    repository: str
    ref: str
    prefix: str

    def listing(self, store: ObjectStore, unit: Unit = WHOLE) -> Iterator[RemoteObject]:
        """The objects of a unit, in key order."""
        prefix = listing_prefix(self.prefix) + unit.start
        if unit.is_deep:
            return store.list(self.repository, self.ref, prefix)
        level = store.level(self.repository, self.ref, prefix)
        return (item for item in level if isinstance(item, RemoteObject))

    def level(self, store: ObjectStore, start: str) -> Iterator[str]:
        """The paths directly in a folder, those of folders with a slash at the end."""
        whole = listing_prefix(self.prefix)
        for item in store.level(self.repository, self.ref, whole + start):
            if isinstance(item, str):
                if not is_action(item):
                    yield item.removeprefix(whole)
            # The folder's own marker is in it, and no folder in it.
            elif item.key != whole + start:
                yield from (entry.path for entry in projected([item], self.prefix))


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
