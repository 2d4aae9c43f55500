"""What a workspace needs from an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from perago.protocol.workspace import StagingBranch
from perago.transfer.inventory import ObjectStore, RemoteObject, listing_prefix
from perago.transfer.plan import SyncPlan


@dataclass(frozen=True, slots=True)
class Source:
    """A projection at a commit."""

    repository: str
    ref: str
    prefix: str

    def listing(self, store: ObjectStore) -> Iterator[RemoteObject]:
        return store.list(self.repository, self.ref, listing_prefix(self.prefix))


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
    def fetch(self, source: Source, listing: Iterator[RemoteObject], data: Path) -> Fetched: ...
    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        """Carry out a plan, of any engine: deletes first, so that ``a`` can become ``a/b``."""
        ...
