"""Spark without Spark: a body writes objects to its staging branch, now or "still running"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from perago.errors import BackendError
from perago.protocol.identity import Execution
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.testing.lake import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.inventory import listing_prefix, project

Operation = Callable[[], None]


@dataclass
class InMemorySparkWorkspace:
    """What a body and its guardrails get. Paths are relative to the prefix."""

    lake: InMemoryLake
    repository: str
    prefix: str
    ref: str
    staging: StagingBranch | None
    running: list[Operation] = field(repr=False)

    def files(self) -> dict[str, bytes]:
        """Every file at the commit that is read."""
        objects = self.lake.objects
        listing = objects.list(self.repository, self.ref, listing_prefix(self.prefix))
        return {
            path: b"".join(objects.read(self.repository, self.ref, item.key, item.size))
            for path, item in project(listing, self.prefix).files.items()
        }

    def write(self, path: str, content: bytes = b"") -> None:
        self.write_key(listing_prefix(self.prefix) + path, content)

    def write_key(self, key: str, content: bytes = b"") -> None:
        """Write anywhere on the branch, as nothing keeps a Spark job from doing."""
        staging = self._writable()
        self.lake.objects.put(staging.repository, staging.branch, key, StoredObject(content))

    def delete(self, path: str) -> None:
        staging = self._writable()
        key = listing_prefix(self.prefix) + path
        self.lake.objects.delete(staging.repository, staging.branch, [key])

    def leave_running(self, operation: Operation) -> None:
        """Start something that ends only when somebody finishes or interrupts it."""
        self.running.append(operation)

    def _writable(self) -> StagingBranch:
        if self.staging is None:
            raise RuntimeError("this workspace has no output")
        return self.staging


@dataclass
class InMemorySparkSession:
    """Implements ``SparkSession``."""

    lake: InMemoryLake
    input: WorkspaceInput
    prefix: str
    # Operations that the body started and nobody awaited.
    running: list[Operation] = field(default_factory=list)

    def workspace(self, ref: str, staging: StagingBranch | None = None) -> InMemorySparkWorkspace:
        return InMemorySparkWorkspace(
            self.lake, self.input.repository, self.prefix, ref, staging, self.running
        )

    def settle(self) -> int:
        def do() -> int:
            count = len(self.running)
            self.running.clear()
            return count

        return self.lake.faults.run("spark.settle", do)

    def finish(self) -> None:
        """Let what still runs come to its end, as it does where nobody interrupts it."""
        running, self.running[:] = list(self.running), []
        for operation in running:
            try:
                operation()
            except BackendError:  # the branch is gone: Spark's job fails, unseen by anybody
                continue


class InMemorySpark:
    """Implements ``SparkExecutions``; ``sessions`` are all that were ever opened."""

    def __init__(self, lake: InMemoryLake) -> None:
        self._lake = lake
        self.sessions: list[InMemorySparkSession] = []
        self.open_count = 0
        # Executions whose sessions were ended from outside.
        self.ended: list[str] = []

    def end(self, execution_id: str) -> None:
        self.ended.append(execution_id)

    @contextmanager
    def open(
        self, execution: Execution, workspace: WorkspaceInput, prefix: str
    ) -> Iterator[InMemorySparkSession]:
        session = self._lake.faults.run(
            "spark.open", lambda: InMemorySparkSession(self._lake, workspace, prefix)
        )
        self.sessions.append(session)
        self.open_count += 1
        try:
            yield session
        finally:
            session.running.clear()
            self.open_count -= 1
