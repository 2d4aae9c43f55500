"""Where figures come from: Conductor, LakeFS and workers. Nothing is changed and nothing stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from pydantic import ValidationError

from perago.conductor.inspection import (
    ConductorInspection,
    QueueView,
    WorkflowSummary,
    WorkflowView,
)
from perago.errors import BackendError, BackendUnavailableError, ConfigurationError
from perago.http_client import HttpClient, RequestError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.inspection import LakeFSInspection
from perago.lakefs.objects import LakeFSObjects
from perago.observability.running import RUNNING, RunningView, WorkerState
from perago.operations.attempts import InspectedConductor, InspectedLake
from perago.operations.history import Differences
from perago.protocol.workspace import BranchHead
from perago.settings import Address, Settings
from perago.wiring.connections import conductor_connection, lakefs_connection

# A person waits for a page: one try, and no long one.
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_WORKER_SECONDS = 2.0


class ConductorSource(InspectedConductor, Protocol):
    """What is read of Conductor."""

    def workflow(self, workflow_id: str) -> WorkflowView: ...
    def find_workflows(
        self, amount: int, *, running: bool = False
    ) -> Sequence[WorkflowSummary]: ...
    def queues(self) -> Sequence[QueueView]: ...


class LakeSource(InspectedLake, Differences, Protocol):
    """What is read of LakeFS."""

    def repositories(self, amount: int) -> Sequence[tuple[str, str]]: ...
    def branches(self, repository: str, amount: int) -> Sequence[BranchHead]: ...


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that pages are made from."""

    conductor: ConductorSource
    # None where no LakeFS is configured: a worker may have tasks without a workspace only.
    lake: LakeSource | None
    workers: Sequence[WorkerState] = ()
    now: Callable[[], datetime] = _now
    _held: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Close the connections."""
        self._held.close()


def open_sources(settings: Settings, workers: Sequence[WorkerState]) -> Sources:
    """Open the connections that the settings name; nothing is asked yet."""
    with ExitStack() as held:
        conductor = ConductorInspection(
            replace(
                conductor_connection(settings),
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
            ),
            tries=1,
        )
        held.callback(conductor.close)
        lake = _open_lake(settings, held)
        return Sources(conductor, lake, workers, _held=held.pop_all())


def _open_lake(settings: Settings, held: ExitStack) -> LakeSource | None:
    try:
        connection = replace(
            lakefs_connection(settings),
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retry_seconds=_RETRY_SECONDS,
        )
    except ConfigurationError:
        return None
    control, objects = LakeFSControl(connection), LakeFSObjects(connection)
    listing = LakeFSInspection(connection, tries=1)
    for client in (control, objects, listing):
        held.callback(client.close)
    return _Lake(control, objects, listing)


class _Lake:
    """The clients of one LakeFS as one source."""

    def __init__(
        self, control: LakeFSControl, objects: LakeFSObjects, listing: LakeFSInspection
    ) -> None:
        self.default_branch = control.default_branch
        self.log = control.log
        self.get_commit = control.get_commit
        self.list_tags = control.list_tags
        self.list_branches = control.list_branches
        self.changes = objects.changes
        self.repositories = listing.repositories
        self.branches = listing.branches


class RemoteWorker:
    """A worker of another process, by its metrics address; implements ``WorkerState``."""

    def __init__(self, address: Address) -> None:
        self.name = f"worker at {address}"
        self._http = HttpClient(f"http://{address}", connect_timeout=_WORKER_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def metrics(self) -> str:
        return self._read("/metrics").decode("utf-8", "replace")

    def running(self) -> Sequence[RunningView]:
        try:
            return RUNNING.validate_json(self._read("/running"))
        except ValidationError:
            raise BackendError(f"the {self.name} is not one of Perago's") from None

    def _read(self, path: str) -> bytes:
        try:
            answer = self._http.request("GET", path, seconds=_WORKER_SECONDS)
        except RequestError:
            raise BackendUnavailableError(
                f"no {self.name}",
                hint="Start one: `perago start MODULE`. It tells what it does at "
                "PERAGO_METRICS_ADDRESS.",
            ) from None
        if answer.status != 200:
            raise BackendError(f"the {self.name} is not one of Perago's")
        return answer.body
