"""Which engine moves what: by the listing's size, and again by the size of what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from perago.protocol.workspace import StagingBranch
from perago.testing import InMemoryLake
from perago.transfer.engines import ChosenBySize, Fetched, Plan, Threshold
from perago.transfer.inventory import ObjectStore, RemoteObject, Source
from perago.transfer.plan import SyncPlan, Upload
from support.trees import record, remote

SOURCE = Source("repository", "ref", "")


@dataclass
class Store:
    """Only what a choice asks for: a listing, and how far it was read."""

    items: list[RemoteObject]
    read: int = 0

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        assert (repository, ref, prefix) == ("repository", "ref", "")
        for item in self.items:
            self.read += 1
            yield item


STAGING = StagingBranch("repository", "branch")


@dataclass
class Recording:
    """An engine that only remembers what it was asked."""

    store: ObjectStore = field(default_factory=lambda: InMemoryLake().objects)
    cache: None = None
    fetched: bool = False
    listed: list[str] | None = None
    staged: Plan | None = None

    def fetch(self, source: Source, data: Path) -> Fetched:
        assert source == SOURCE
        self.fetched = True
        return self

    def fetch_listed(self, source: Source, listing: Iterable[RemoteObject], data: Path) -> Fetched:
        self.listed = [item.key for item in listing]
        return self

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> dict[str, int]:
        self.staged = plan
        return {}

    def counts(self) -> dict[str, int]:
        return {}

    def changes(self, body_started_ns: int) -> Plan:
        return SyncPlan((), (), 0)


def chosen(
    objects: int, size: int, listing: Iterable[RemoteObject] = ()
) -> tuple[Recording, Recording, ChosenBySize]:
    store: Any = Store(list(listing))
    small, large = Recording(store), Recording(store)
    return small, large, ChosenBySize(small, large, Threshold(objects, size))


@pytest.mark.parametrize(
    ("objects", "size", "is_large"),
    [
        *[(4, 0, False), (3, 0, True), (1, 0, True), (0, 0, False)],
        *[(0, 31, False), (0, 30, True), (100, 30, True), (3, 1000, True), (100, 1000, False)],
    ],
)
def test_a_listing_of_three_objects_and_30_bytes(objects: int, size: int, is_large: bool) -> None:
    small, large, engine = chosen(objects, size, [remote(key, 10) for key in "abc"])
    assert engine.fetch(SOURCE, Path()) is (large if is_large else small)
    # What was read to decide is not read again by the small one; the large one lists by itself.
    assert small.listed == (None if is_large else ["a", "b", "c"])
    assert (small.fetched, large.fetched, large.listed) == (False, is_large, None)


def test_an_empty_workspace_is_small() -> None:
    small, large, engine = chosen(1, 1)
    engine.fetch(SOURCE, Path())
    assert (small.listed, large.fetched) == ([], False)


def test_only_the_head_of_a_large_listing_is_read_before_the_choice() -> None:
    _, large, engine = chosen(10, 0, (remote(str(number)) for number in range(1000)))
    engine.fetch(SOURCE, Path())
    assert large.fetched
    assert cast("Store", engine.store).read == 10


@pytest.mark.parametrize(
    ("uploads", "deletes", "is_large"), [(1, 1, False), (2, 1, True), (0, 3, True), (0, 0, False)]
)
def test_staging_is_chosen_by_what_changed(uploads: int, deletes: int, is_large: bool) -> None:
    small, large, engine = chosen(3, 0)
    files = tuple(Upload(str(n), str(n), record()) for n in range(uploads))
    plan = SyncPlan(files, tuple(map(str, range(deletes))), 1_000_000)
    engine.stage(plan, STAGING, Path())
    taken, other = (large, small) if is_large else (small, large)
    assert taken.staged is plan
    assert other.staged is None
