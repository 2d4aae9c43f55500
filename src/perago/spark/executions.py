"""Implement the protocol's port to Spark: a Connect session per execution, and workspaces on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perago.errors import SparkServerDiedError
from perago.names import listing_prefix
from perago.protocol.identity import Execution
from perago.protocol.ports import LastSeen
from perago.protocol.workspace import NamedInput, StagingBranch, WorkspaceInput
from perago.spark.caching import free_cached
from perago.spark.command_filter import CommandFilter
from perago.spark.errors import translated
from perago.spark.ledger import WriteLedger
from perago.spark.operations import end_operations
from perago.spark.session import end_session, is_gone
from perago.spark.tables import StagedTables, StagingStore
from perago.tasks.changes import WorkspaceChanges
from perago.tasks.spark import SparkWorkspace
from perago.transfer.inventory import project, project_keys

# An interrupted job ends when its driver-side thread notices; a commit in progress takes longest.
_END_SECONDS = 60.0

OpenSession = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class ConnectExecution:
    """Implements ``SparkExecution`` of the protocol's ports."""

    session: Any
    store: StagingStore
    repository: str
    prefix: str
    last_seen: LastSeen
    inputs: Mapping[str, NamedInput] = field(default_factory=dict)
    ledger: WriteLedger = field(default_factory=WriteLedger)
    command_filter: CommandFilter = field(init=False)

    def __post_init__(self) -> None:
        read = (item.workspace.repository for item in self.inputs.values())
        made = CommandFilter(self.session, self.ledger, {self.repository, *read})
        object.__setattr__(self, "command_filter", made)

    def workspace(self, ref: str, staging: StagingBranch | None = None) -> SparkWorkspace:
        source = _uri(self.repository, ref, self.prefix)
        sources = {
            name: _uri(it.workspace.repository, it.workspace.ref, it.prefix)
            for name, it in self.inputs.items()
        }
        reading = partial(
            SparkWorkspace,
            self.session,
            source,
            list_paths=lambda: self._paths(ref),
            sources=sources,
            compare=lambda since: self._changes(ref, since),
        )
        if staging is None:
            return reading()
        output = _uri(self.repository, staging.branch, self.prefix)
        self.command_filter.allow(output)
        tables = StagedTables(self.store, staging, self.prefix, output, self.ledger)
        return reading(output_uri=output, tables=tables)

    def failed_writes(self) -> list[str]:
        return [*self.command_filter.failed_paths(), *self.command_filter.failed_queries()]

    def end_operations(self) -> int:
        if is_gone(self.session):
            raise SparkServerDiedError("nothing listens any more where the Spark server was")
        # First of all: a thread that the body left may be about to write.
        writing = self.ledger.close()
        with translated("end the operations of this execution"):
            # A write may be between its steps, where Spark runs nothing of it.
            ended = max(writing, end_operations(self.session, _END_SECONDS))
        # While the staging branch is there: Spark looks a frame's files up to find it.
        free_cached(self.session)
        return ended

    def close(self) -> None:
        """End the operations and the session; the server also ends both after a timeout."""
        if not is_gone(self.session):
            self.command_filter.drop_tables()
        end_session(self.session)

    def _paths(self, ref: str) -> list[str]:
        listing = self.store.list(self.repository, ref, listing_prefix(self.prefix))
        return list(project(listing, self.prefix).files)

    def _changes(self, ref: str, since: str | None) -> WorkspaceChanges:
        found = self.last_seen.changes(ref, since)
        if found is None:
            return WorkspaceChanges(added=tuple(self._paths(ref)))
        seen, changes = found

        def paths(kind: str) -> tuple[str, ...]:
            keys = (change.key for change in changes if change.kind == kind)
            return tuple(project_keys(keys, self.prefix))

        return WorkspaceChanges(paths("added"), paths("changed"), paths("removed"), seen)


def _uri(repository: str, ref: str, prefix: str) -> str:
    return f"s3a://{repository}/{ref}/{listing_prefix(prefix)}".rstrip("/")


@dataclass(frozen=True, slots=True)
class ConnectExecutions:
    """Implements ``SparkExecutions``. ``open_session`` takes an execution's id."""

    store: StagingStore
    open_session: OpenSession
    # Ends the session of another execution, by its id.
    end_session_of: Callable[[str], None] = lambda _: None

    def end(self, execution_id: str) -> None:
        self.end_session_of(execution_id)

    @contextmanager
    def open(
        self,
        execution: Execution,
        workspace: WorkspaceInput,
        prefix: str,
        inputs: Mapping[str, NamedInput],
        last_seen: LastSeen,
    ) -> Iterator[ConnectExecution]:
        with translated("open a session"):
            session = self.open_session(execution.id)
        repository = workspace.repository
        opened = ConnectExecution(session, self.store, repository, prefix, last_seen, inputs)
        try:
            yield opened
        finally:
            opened.close()
