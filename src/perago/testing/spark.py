"""Spark in memory: a body writes objects to its staging branch, at once or in operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from perago.errors import BackendError
from perago.names import listing_prefix
from perago.protocol.identity import Execution
from perago.protocol.ports import LastSeen
from perago.protocol.workspace import NamedInput, StagingBranch, WorkspaceInput
from perago.testing.lake import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.inventory import project

Operation = Callable[[], None]


@dataclass
class InMemorySparkWorkspace:
    """The workspace of a body and its guardrails. Paths are relative to the prefix."""

    lake: InMemoryLake
    repository: str
    prefix: str
    ref: str
    staging: StagingBranch | None
    running: list[Operation] = field(repr=False)
    failed: list[str] = field(default_factory=list, repr=False)
    inputs: Mapping[str, NamedInput] = field(default_factory=dict)
    last_seen: LastSeen | None = field(default=None, repr=False)

    def changes(self, since: str | None = None) -> dict[str, str] | None:
        """Return how keys changed since this task last published; None if it never did."""
        assert self.last_seen is not None  # noqa: S101  narrows the type; executions have one
        found = self.last_seen.changes(self.ref, since)
        return None if found is None else {change.key: change.kind for change in found[1]}

    def files(self, source: str | None = None) -> dict[str, bytes]:
        """Return the content of every file at the input commit, by path; or those of an input."""
        if source is None:
            return self._read(self.repository, self.ref, self.prefix)
        given = self.inputs[source]
        return self._read(given.workspace.repository, given.workspace.ref, given.prefix)

    def _read(self, repository: str, ref: str, prefix: str) -> dict[str, bytes]:
        objects = self.lake.objects
        listing = objects.list(repository, ref, listing_prefix(prefix))
        return {
            path: b"".join(objects.read(repository, ref, item.key, item.size))
            for path, item in project(listing, prefix).files.items()
        }

    def write(self, path: str, content: bytes = b"") -> None:
        self.write_key(listing_prefix(self.prefix) + path, content)

    def write_key(self, key: str, content: bytes = b"") -> None:
        """Write anywhere on the branch, also outside the prefix, as a Spark job can."""
        staging = self._writable()
        self.lake.objects.put(staging.repository, staging.branch, key, StoredObject(content))

    def delete(self, path: str) -> None:
        staging = self._writable()
        key = listing_prefix(self.prefix) + path
        self.lake.objects.delete(staging.repository, staging.branch, [key])

    def fail_to_write(self, path: str) -> None:
        """Fail as Spark's overwrite does, which has deleted what was there before it fails."""
        staging = self._writable()
        start = listing_prefix(self.prefix) + path
        listing = self.lake.objects.list(staging.repository, staging.branch, start)
        keys = [item.key for item in listing]
        self.lake.objects.delete(staging.repository, staging.branch, keys)
        self.failed.append(path)

    def leave_running(self, operation: Operation) -> None:
        """Start an operation that runs until it is finished or interrupted."""
        self.running.append(operation)

    def _writable(self) -> StagingBranch:
        if self.staging is None:
            raise RuntimeError("this workspace has no output")
        return self.staging


@dataclass
class InMemorySparkExecution:
    """Implements ``SparkExecution``."""

    lake: InMemoryLake
    input: WorkspaceInput
    prefix: str
    inputs: Mapping[str, NamedInput] = field(default_factory=dict)
    last_seen: LastSeen | None = field(default=None, repr=False)
    # Operations that the body started and did not wait for.
    running: list[Operation] = field(default_factory=list)
    # Paths at which a write of the body failed.
    failed: list[str] = field(default_factory=list)

    def workspace(self, ref: str, staging: StagingBranch | None = None) -> InMemorySparkWorkspace:
        return InMemorySparkWorkspace(
            self.lake,
            self.input.repository,
            self.prefix,
            ref,
            staging,
            self.running,
            self.failed,
            self.inputs,
            self.last_seen,
        )

    def failed_writes(self) -> list[str]:
        return list(self.failed)

    def end_operations(self) -> int:
        def do() -> int:
            count = len(self.running)
            self.running.clear()
            return count

        return self.lake.faults.run("spark.end_operations", do)

    def finish(self) -> None:
        """Let the running operations end by themselves, without an interrupt."""
        running, self.running[:] = list(self.running), []
        for operation in running:
            try:
                operation()
            except BackendError:  # the branch was deleted: Spark's job fails
                continue


class InMemorySpark:
    """Implements ``SparkExecutions``; ``opened`` lists every execution so far."""

    def __init__(self, lake: InMemoryLake) -> None:
        self._lake = lake
        self.opened: list[InMemorySparkExecution] = []
        self.open_count = 0
        # Executions whose sessions were ended from outside.
        self.ended: list[str] = []

    def end(self, execution_id: str) -> None:
        self.ended.append(execution_id)

    @contextmanager
    def open(
        self,
        execution: Execution,
        workspace: WorkspaceInput,
        prefix: str,
        inputs: Mapping[str, NamedInput],
        last_seen: LastSeen,
    ) -> Iterator[InMemorySparkExecution]:
        spark = self._lake.faults.run(
            "spark.open",
            lambda: InMemorySparkExecution(self._lake, workspace, prefix, inputs, last_seen),
        )
        self.opened.append(spark)
        self.open_count += 1
        try:
            yield spark
        finally:
            spark.running.clear()
            self.open_count -= 1
