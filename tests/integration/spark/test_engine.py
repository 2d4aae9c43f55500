"""The engine on Spark against the one in this process: the same trees, plans and errors."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.transfer.lake import Lake
from integration.transfer.test_round_trip import ODD_NAMES, contents
from perago.lakefs.shipment import StoreShipment
from perago.protocol.events import PhaseEvent
from perago.spark.engine import SparkEngine
from perago.transfer.engine import Engine
from perago.transfer.partition import Bounds
from perago.transfer.plan import SyncPlan
from perago.transfer.port import Fetched, Source, TransferEngine
from perago.transfer.scan import scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]

_NUMBERS = itertools.count()


@dataclass
class Two:
    """Both engines on one repository."""

    lake: Lake
    session: SparkSession
    events: list[PhaseEvent] = field(default_factory=list)

    @property
    def engines(self) -> dict[str, TransferEngine]:
        store = self.lake.objects
        shipment = StoreShipment(self.lake.connection)
        bounds = Bounds(objects=8, size=40)
        spark = SparkEngine(store, shipment, lambda: self.session, self.events.append, 4, bounds)
        return {"process": Engine(store), "spark": spark}

    def fetch(self, engine: TransferEngine, ref: str, prefix: str) -> tuple[Fetched, Path]:
        data = self.lake.root / f"attempt-{next(_NUMBERS)}" / "data"
        data.mkdir(parents=True)
        source = Source(self.lake.repository, ref, prefix)
        return engine.fetch(source, source.listing(engine.store), data), data


@pytest.fixture
def two(lake: Lake, session: SparkSession) -> Two:
    return Two(lake, session)


def without_records(plan: SyncPlan) -> object:
    """A plan less what differs between two folders: times and inodes."""
    uploads = [(u.path, u.key, u.size, u.content_type, u.metadata) for u in plan.uploads]
    return uploads, plan.deletes, plan.unchanged, plan.summary()


def test_both_engines_give_the_same_trees_plans_and_branches(two: Two) -> None:
    lake = two.lake
    for number, name in enumerate(ODD_NAMES):
        lake.put(f"p/{name}", b"%d" % number * number, owner=f"me {number}")
        lake.put(f"p/in/{name}/inner", b"x")
    lake.put("p/empty", b"")
    lake.put("p/becomes", b"a file")
    lake.put("outside", b"x")
    for marker in ("p/", "p/kept/", "p/dropped/"):
        lake.put_marker(marker)
    ref = lake.commit()
    found = {}
    for name, engine in two.engines.items():
        fetched, data = two.fetch(engine, ref, "p")
        came = contents(data), scan(data).folders, fetched.counts()
        body(data)
        plan = fetched.changes(data.stat().st_ctime_ns)
        staging = lake.staging(ref)
        engine.stage(plan, staging, data)
        listing = lake.listing(staging.branch)
        result = {key: (item.size, item.checksum, item.metadata) for key, item in listing.items()}
        found[name] = came, without_records(plan.collect()), plan.summary(), result
    assert found["spark"] == found["process"]


def body(data: Path) -> None:
    for name in ODD_NAMES[::2]:
        (data / name).write_bytes(b"changed " + os.fsencode(name))
    for name in ODD_NAMES[::3]:
        (data / "in" / name / "inner").unlink()
    (data / "new").mkdir()
    (data / "new" / "file").write_bytes(b"n" * 100)
    (data / "new" / "nothing").touch()
    (data / "becomes").unlink()
    (data / "becomes").mkdir()
    (data / "becomes" / "folder").write_bytes(b"1")
    (data / "dropped").rmdir()
