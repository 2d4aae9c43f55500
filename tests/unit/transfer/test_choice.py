"""Which engine moves what: by the listing's size, and again by the size of what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perago.protocol.workspace import StagingBranch
from perago.testing import InMemoryLake
from perago.transfer.choice import ChosenBySize, Threshold
from perago.transfer.inventory import ObjectStore, RemoteObject
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.port import Fetched, Plan, Source
from unit.transfer.trees import record, remote

SOURCE = Source("repository", "ref", "")
STAGING = StagingBranch("repository", "branch")


@dataclass
class Recording:
    """An engine that only remembers what it was asked."""

    store: ObjectStore = field(default_factory=lambda: InMemoryLake().objects)
    listed: list[str] | None = None
    staged: Plan | None = None

    def fetch(self, source: Source, listing: Iterator[RemoteObject], data: Path) -> Fetched:
        self.listed = [item.key for item in listing]
        return self

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> None:
        self.staged = plan

    def counts(self) -> dict[str, int]:
        return {}

    def changes(self, body_started_ns: int) -> Plan:
        return SyncPlan((), (), 0)


def chosen(objects: int, size: int) -> tuple[Recording, Recording, ChosenBySize]:
    small, large = Recording(), Recording()
    return small, large, ChosenBySize(small, large, Threshold(objects, size))


@pytest.mark.parametrize(
    ("objects", "size", "is_large"),
    [
        *[(4, 0, False), (3, 0, True), (1, 0, True), (0, 0, False)],
        *[(0, 31, False), (0, 30, True), (100, 30, True), (3, 1000, True), (100, 1000, False)],
    ],
)
def test_a_listing_of_three_objects_and_30_bytes(objects: int, size: int, is_large: bool) -> None:
    small, large, engine = chosen(objects, size)
    engine.fetch(SOURCE, iter(remote(key, 10) for key in "abc"), Path())
    taken, other = (large, small) if is_large else (small, large)
    assert taken.listed == ["a", "b", "c"]
    assert other.listed is None


def test_an_empty_workspace_is_small() -> None:
    small, large, engine = chosen(1, 1)
    engine.fetch(SOURCE, iter(()), Path())
    assert (small.listed, large.listed) == ([], None)


def test_only_the_head_of_a_large_listing_is_read_before_the_choice() -> None:
    given = iter(remote(str(number)) for number in range(1000))
    left: list[int] = []

    class Looking(Recording):
        def fetch(self, source: Source, listing: Iterator[RemoteObject], data: Path) -> Fetched:
            left.append(sum(1 for _ in given))
            return self

    ChosenBySize(Recording(), Looking(), Threshold(10, 0)).fetch(SOURCE, given, Path())
    assert left == [990]


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
