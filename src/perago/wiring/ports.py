"""The ports of attempts, built from settings: Conductor, LakeFS, folders, Spark and the clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.store_serializer import LakeFSStoreSerializer
from perago.progress import Advance
from perago.protocol.events import EventSink, PhaseEvent
from perago.protocol.job import Policy, Ports, SparkPorts, StoragePorts
from perago.protocol.ports import Attempts
from perago.settings import Settings
from perago.spark.executions import ConnectExecutions, OpenSession
from perago.text import show_path
from perago.transfer.cache import ObjectCache
from perago.transfer.counted import CountedStore
from perago.transfer.engine import Engine
from perago.transfer.engines import ChosenBySize, Threshold, TransferEngine
from perago.transfer.inventory import ObjectStore
from perago.transfer.kept import KeptWorkspace
from perago.transfer.workspaces import LocalWorkspaces
from perago.wiring.connections import lakefs_connection

_log = logging.getLogger(__name__)


class SystemClock:
    """Implements ``Clock`` with the system's time."""

    def monotonic(self) -> float:
        """Return seconds that also pass while the machine is suspended, as a lease does.

        Linux has such a clock; ``time.monotonic`` stands still there, and a worker that wakes up
        would believe in a lease that is over. Other systems get ``time.monotonic``.
        """
        clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if clock is None else time.clock_gettime(clock)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def today(self) -> str:
        return datetime.now(UTC).strftime("%Y%m%d")


@dataclass(frozen=True, slots=True)
class SparkAccess:
    """How attempts reach Spark."""

    # Opens the session of an execution, for Spark tasks.
    open: OpenSession | None = None
    # Ends the session of another execution, by its id.
    end: Callable[[str], None] = lambda _: None
    # Gives the session that moves large workspaces, where Spark sees their folders.
    transfer_session: Callable[[], Any] | None = None
    # Is told every event, for the labels of jobs.
    note: EventSink = lambda _: None


@contextmanager
def open_ports(
    settings: Settings,
    *,
    attempts: Attempts,
    events: EventSink,
    policy: Policy | None = None,
    with_lakefs: bool = True,
    spark: SparkAccess | None = None,
    count: Advance | None = None,
    kept: KeptWorkspace | None = None,
) -> Iterator[Ports]:
    """Open everything outside that attempts touch, and close it at the end of the block.

    Without LakeFS the ports serve workspace-free tasks only. ``count`` is told how many bytes
    this process has moved. With ``kept``, each attempt leaves its workspace to the next one.
    """
    access = spark or SparkAccess()

    def tell(event: PhaseEvent) -> None:
        access.note(event)
        events(event)

    with ExitStack() as closing_stack:
        storage = None
        if with_lakefs:
            storage = closing_stack.enter_context(
                _open_storage(settings, tell, access, count, kept)
            )
        yield Ports(attempts, SystemClock(), tell, policy or build_policy(settings), storage)


@contextmanager
def _open_storage(
    settings: Settings,
    events: EventSink,
    spark: SparkAccess,
    count: Advance | None,
    kept: KeptWorkspace | None,
) -> Iterator[StoragePorts]:
    lakefs = lakefs_connection(settings)
    with closing(LakeFSControl(lakefs)) as lake, closing(LakeFSObjects(lakefs)) as objects:
        store: ObjectStore = objects if count is None else CountedStore(objects, count)
        engine = build_engine(settings, lakefs, store, events, spark.transfer_session, kept)
        workspaces = LocalWorkspaces(settings.workspace_root, engine, kept)
        tasks = None
        if spark.open is not None:
            tasks = SparkPorts(ConnectExecutions(objects, spark.open, spark.end), objects)
        # A managed server ends with its worker; it is not started only to end a session.
        outlive = spark.transfer_session is not None and settings.spark_remote is not None
        yield StoragePorts(lake, workspaces, tasks, transfers_outlive_worker=outlive)


def build_policy(settings: Settings) -> Policy:
    return Policy(
        publish_fence=settings.publish_fence,
        replacement=settings.replacement,
        allowed_workspaces=settings.allowed_workspace_patterns,
    )


def build_engine(
    settings: Settings,
    lakefs: LakeFSConnection,
    store: ObjectStore,
    events: EventSink,
    transfer_session: Callable[[], Any] | None = None,
    kept: KeptWorkspace | None = None,
) -> TransferEngine:
    """Build the in-process engine and, with a session, the Spark engine for large workspaces."""
    cache = _usable_cache(settings, lakefs.server)
    in_process = Engine(store, settings.transfer_threads, cache, kept)
    if transfer_session is None:
        return in_process
    # Imported here: a worker without Spark need not load pyarrow.
    from perago.transfer.on_spark.engine import SparkEngine

    on_spark = SparkEngine(store, LakeFSStoreSerializer(lakefs), transfer_session, events)
    return ChosenBySize(in_process, on_spark, spark_threshold(settings))


def _usable_cache(settings: Settings, server: str) -> ObjectCache | None:
    """Open the object cache, if it is not switched off; attempts also run without it."""
    if settings.object_cache_bytes == 0:
        return None
    try:
        return open_cache(settings, server)
    except ConfigurationError as error:
        _log.warning("attempts run without the object cache: %s", error)
        return None


def open_cache(settings: Settings, server: str = "") -> ObjectCache:
    """Open the object cache; raises ``ConfigurationError`` if its folder cannot be used."""
    folder = settings.object_cache
    cache = ObjectCache(
        folder, settings.object_cache_bytes, min_free=settings.min_free_bytes, server=server
    )
    try:
        cache.prepare()
    except OSError as error:
        raise ConfigurationError(
            f"the object cache {show_path(str(folder))} cannot be used: {error.strerror or error}",
            hint="Give PERAGO_OBJECT_CACHE a folder that belongs to this user alone.",
        ) from error
    return cache


def spark_threshold(settings: Settings) -> Threshold:
    """Build the size from which on Spark moves a workspace."""
    return Threshold(settings.spark_min_objects, settings.spark_min_bytes)
