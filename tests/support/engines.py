"""Both engines on one repository, and what a test compares of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import PeragoError
from perago.lakefs.store_serializer import LakeFSStoreSerializer
from perago.protocol.events import PhaseEvent
from perago.transfer.engine import Engine
from perago.transfer.engines import Fetched, TransferEngine
from perago.transfer.inventory import RemoteObject, Source
from perago.transfer.on_spark.engine import COMPARED_HERE, SparkEngine
from perago.transfer.partition import Bounds
from perago.transfer.plan import SyncPlan
from perago.transfer.scan import scan
from support.lake_repository import LakeRepository
from support.trees import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Body = Callable[[Path], None]


@dataclass
class Engines:
    """The engine of this process and the one on Spark."""

    lake: LakeRepository
    session: SparkSession
    bounds: Bounds = field(default_factory=lambda: Bounds(objects=6, size=60))
    events: list[PhaseEvent] = field(default_factory=list)
    spark_threads: int = 4
    units: int = 5
    # So low that Spark compares what has more than a file.
    compared_here: Bounds = field(default_factory=lambda: Bounds(objects=1, size=1))

    @property
    def process(self) -> Engine:
        return Engine(self.lake.objects)

    @property
    def spark(self) -> SparkEngine:
        return SparkEngine(
            self.lake.objects,
            LakeFSStoreSerializer(self.lake.connection),
            lambda: self.session,
            self.events.append,
            threads=self.spark_threads,
            bounds=self.bounds,
            min_subtrees=self.units,
            compared_here=self.compared_here,
        )

    @property
    def spark_comparing_here(self) -> SparkEngine:
        return replace(self.spark, compared_here=COMPARED_HERE)

    def a_folder(self) -> Path:
        data = self.lake.root / f"attempt-{uuid.uuid4().hex}" / "data"
        data.mkdir(parents=True)
        return data

    def fetch(self, engine: TransferEngine, ref: str, prefix: str) -> tuple[Fetched, Path]:
        data = self.a_folder()
        return engine.fetch(Source(self.lake.repository, ref, prefix), data), data

    def outcome(self, engine: TransferEngine, ref: str, prefix: str, body: Body) -> Outcome:
        """Everything that one attempt with an engine leads to, an error included."""
        seen: list[object] = []
        try:
            fetched, data = self.fetch(engine, ref, prefix)
            seen += [contents(data), scan(data).folders, fetched.counts()]
            body(data)
            plan = fetched.changes(data.stat().st_ctime_ns)
            seen += [bool(plan), plan.summary(), without_records(plan.collect())]
            staging = self.lake.staging(ref)
            engine.stage(plan, staging, data)
            listing = self.lake.listing(staging.branch)
            seen.append(
                {key: self.described(staging.branch, item) for key, item in listing.items()}
            )
        except PeragoError as error:
            seen += [type(error), str(error), error.hint]
        return seen

    def described(self, ref: str, item: RemoteObject) -> object:
        """Everything about one object, its content included."""
        content = b"".join(self.lake.objects.read(self.lake.repository, ref, item.key, item.size))
        return item, content


Outcome = list[object]


def without_records(plan: SyncPlan) -> object:
    """A plan less what differs between two folders: times and inodes."""
    uploads = [(u.path, u.key, u.size, u.content_type, u.metadata) for u in plan.uploads]
    return uploads, plan.deletes, plan.unchanged
