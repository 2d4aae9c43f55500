"""Running one task here and now: on a folder with no server, or on LakeFS without Conductor."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perago.errors import (
    BackendError,
    BackendUnavailableError,
    InputError,
    PostGuardrailViolation,
    PreGuardrailViolation,
)
from perago.operations.locations import naming_what_is_there
from perago.progress import Advance
from perago.protocol.events import EventSink, Phases
from perago.protocol.garbage import local_task_id
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.job import Job, Ports, WorkspaceUse
from perago.protocol.outcome import Completed, Outcome, checked_output, failure_of
from perago.protocol.ports import AttemptSnapshot, Lake
from perago.protocol.run import run_attempt
from perago.protocol.steps import (
    call_body,
    check_guardrails,
    check_result,
    validate_params,
)
from perago.protocol.workspace import StagingBranch
from perago.settings import Settings
from perago.spark.client import SparkClient
from perago.spark.files import SparkFiles
from perago.spark.runtime import SparkRuntime, open_runtime
from perago.spark.settings import SparkOptions
from perago.tasks.changes import WorkspaceChanges
from perago.tasks.context import attempt_context
from perago.tasks.definition import TaskDefinition
from perago.tasks.spark import SparkWorkspace
from perago.transfer.inventory import Projection
from perago.transfer.plan import build_sync_plan
from perago.transfer.scan import scan
from perago.transfer.sweep import Fate, clear, sweep
from perago.wiring.connections import lakefs_connection
from perago.wiring.jobs import build_context, build_job
from perago.wiring.ports import SparkAccess, build_policy, open_ports
from perago.wiring.spark import choose_spark

# What Hadoop writes beside each file of a local folder.
_CHECKSUM = ".*.crc"


@dataclass(frozen=True, slots=True)
class AlwaysCurrent:
    """Stands for Conductor where there is none: no other worker can be given this attempt."""

    claim: Claim

    def read(self, task_id: str) -> AttemptSnapshot:
        attempt = self.claim.attempt
        return AttemptSnapshot(
            status="IN_PROGRESS",
            workflow_instance_id=attempt.workflow_instance_id,
            task_id=task_id,
            retry_count=attempt.retry_count,
            worker_id=self.claim.token,
        )

    def renew(self, claim: Claim) -> None:
        """There is no lease to extend."""

    def has_ended_before(self, workflow_instance_id: str) -> bool:
        return False


def new_execution(definition: TaskDefinition) -> Execution:
    """An identity that no Conductor knows, and whose age `perago gc` can read."""
    now, unique = datetime.now(UTC), uuid.uuid4().hex
    task_id = local_task_id(now, unique[:12])
    attempt = Attempt(
        workflow_instance_id=task_id,
        task_id=task_id,
        retry_count=0,
        reference_name=definition.name,
        scheduled_ms=int(now.timestamp() * 1000),
    )
    return Execution(Claim(attempt, f"local-{unique}"), unique)


def run_alone(
    definition: TaskDefinition, params: dict[str, Any], settings: Settings, events: EventSink
) -> Outcome:
    """Run a task that has no workspace."""
    execution = new_execution(definition)
    attempts = AlwaysCurrent(execution.claim)
    with (
        open_ports(settings, attempts=attempts, events=events, with_lakefs=False) as ports,
        attempt_context(build_context(definition.name, execution, events)),
    ):
        return run_attempt(build_job(definition), execution, {"params": params}, ports)


def run_in_folder(
    definition: TaskDefinition,
    params: dict[str, Any],
    folder: Path,
    settings: Settings,
    events: EventSink,
    inputs: Mapping[str, Path] | None = None,
) -> Outcome:
    """Run a task on a folder in place; what the body does there and in its inputs stays."""
    folder = folder.absolute()
    views = _Views(folder, folder, folder, folder, [inputs] if inputs else [])
    return _run_here(definition, params, views, settings, events)


def run_on_spark(
    definition: TaskDefinition,
    params: dict[str, Any],
    session: Any,
    before: Path,
    after: Path,
    settings: Settings,
    events: EventSink,
    inputs: Mapping[str, Path] | None = None,
    changes: WorkspaceChanges | None = None,
) -> Outcome:
    """Run a Spark task on two folders: it reads ``before`` and writes ``after``, a copy of it.

    ``changes`` are those since it last published; without them, everything in ``before`` is added.
    The session must see both, so its Spark must run on this machine. What Hadoop keeps beside the
    files of a local folder (``.NAME.crc``) is no part of the result and is removed.
    """
    spec = definition.workspace
    writes = after.as_uri() if spec is not None and not spec.read_only else None
    sources = {name: folder.as_uri() for name, folder in (inputs or {}).items()}

    def compare(since: str | None) -> WorkspaceChanges:
        if since is not None:
            raise ValueError(f"changes(since={since!r}): a run on folders has no commits")
        return WorkspaceChanges(tuple(_paths(before))) if changes is None else changes

    def view(folder: Path, output: str | None = None) -> SparkWorkspace:
        return SparkWorkspace(
            session,
            folder.as_uri(),
            output,
            list_paths=lambda: _paths(folder),
            sources=sources,
            compare=compare,
        )

    views = _Views(view(before), view(before, writes), view(after), folder=after)
    outcome = _run_here(definition, params, views, settings, events)
    for checksum in after.rglob(_CHECKSUM):
        checksum.unlink()
    return outcome


def _paths(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(it.relative_to(folder)) for it in found if not it.match(_CHECKSUM))


@dataclass(frozen=True, slots=True)
class _Views:
    """The workspace as the guardrails before, the body and the guardrails after get it."""

    before: Any
    body: Any
    after: Any
    # What would be published.
    folder: Path
    # What the body takes after its params: the folders of its inputs.
    more: Sequence[Any] = ()


def _run_here(
    definition: TaskDefinition,
    params: dict[str, Any],
    views: _Views,
    settings: Settings,
    events: EventSink,
) -> Outcome:
    job, execution = build_job(definition), new_execution(definition)
    attempts = AlwaysCurrent(execution.claim)
    with (
        open_ports(settings, attempts=attempts, events=events, with_lakefs=False) as ports,
        attempt_context(build_context(definition.name, execution, events)),
    ):
        try:
            assert job.workspace is not None  # noqa: S101  narrows the type; the caller looked
            return Completed(_run_steps(job, job.workspace, params, views, ports))
        except Exception as error:  # noqa: BLE001  as in run_attempt: a failure is an outcome
            return failure_of(error)


def _run_steps(
    job: Job, spec: WorkspaceUse, params: dict[str, Any], views: _Views, ports: Ports
) -> dict[str, Any]:
    """The steps of the life cycle that need no server."""
    phases = Phases(ports.events, ports.clock)
    with phases("validate"):
        checked = validate_params(job, params)
    with phases("pre_guardrails"):
        check_guardrails(spec.check_pre, views.before, PreGuardrailViolation, phases)
    with phases("body"):
        value = call_body(lambda: job.body(views.body, checked, *views.more))
    with phases("check_result"):
        executed = check_result(job, value, phases)
        payload = {"workspace": str(views.folder), "result": executed.result_payload}
        output = checked_output(ports, payload)
    with phases("post_guardrails"):
        check_guardrails(spec.check_post, views.after, PostGuardrailViolation, phases)
    if not spec.read_only:
        with phases("check_files"):
            _refuse_unpublishable(views.folder, spec.prefix)
    return output


def _refuse_unpublishable(folder: Path, prefix: str) -> None:
    """Symlinks and the like fail here too, not first in production."""
    build_sync_plan(
        projection=Projection({}, {}),
        tree=scan(folder),
        prefix=prefix,
        is_changed=lambda _: True,
    )


def _at_head(lake: Lake, repository: str, branch: str) -> dict[str, str]:
    ref = lake.get_head(repository, branch).id
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref}


def _started(runtime: SparkRuntime) -> str:
    remote = runtime.remote(lambda: False)
    if remote is None:
        raise BackendUnavailableError("Spark is being stopped")
    return remote


@dataclass(frozen=True, slots=True)
class Transaction:
    """A run against LakeFS that starts from where a branch is now."""

    definition: TaskDefinition
    # What was named on the command line: on a cluster, its modules travel along.
    target: str
    repository: str
    branch: str
    settings: Settings

    def run(
        self,
        params: dict[str, Any],
        events: EventSink,
        complain: Callable[[str], None],
        count: Advance | None = None,
    ) -> Outcome:
        """Run and publish, if the branch is still there by then; ``count`` is told the bytes moved.

        Whatever ends this from outside (Ctrl-C) leaves no staging branch and no folder behind.
        """
        self._sweep(complain)
        execution = new_execution(self.definition)
        attempts = AlwaysCurrent(execution.claim)
        with (
            attempt_context(build_context(self.definition.name, execution, events)),
            self._spark(execution) as spark,
            open_ports(
                self.settings,
                attempts=attempts,
                events=events,
                policy=replace(build_policy(self.settings), replacement="off"),
                spark=spark,
                count=count,
            ) as ports,
        ):
            assert ports.storage is not None  # noqa: S101  narrows the type; opened with LakeFS
            lake = ports.storage.lake
            lakefs = lakefs_connection(self.settings)
            with naming_what_is_there(lakefs, self.repository, self.branch):
                head = _at_head(lake, self.repository, self.branch)
            payload: dict[str, Any] = {"workspace": head, "params": params}
            if inputs := self._inputs(lake):
                payload["inputs"] = inputs
            try:
                return run_attempt(build_job(self.definition), execution, payload, ports)
            except BaseException:
                self._clean_up(execution, lake, complain)
                raise

    def _inputs(self, lake: Lake) -> dict[str, Any]:
        """The inputs of the task, each where its branch is now."""
        spec = self.definition.workspace
        found: dict[str, Any] = {}
        for name, given in (spec.inputs if spec else {}).items():
            if given.repository is None:
                raise InputError(
                    f"a local run cannot know the repository of the input {name!r}",
                    hint=f"Name it: inputs={{{name!r}: InputSpec(repository=…)}}.",
                )
            found[name] = _at_head(lake, given.repository, given.branch)
        return found

    @contextmanager
    def _spark(self, execution: Execution) -> Iterator[SparkAccess]:
        """How the run reaches Spark; a server of the run's own is started when it is used."""
        chosen = choose_spark(self.settings, [self.definition], SparkOptions())
        if chosen is None:
            yield SparkAccess()
            return
        with closing(open_runtime(chosen.spark)) as runtime:
            data, files = self.settings.spark_data_patterns, SparkFiles.of(self.settings)
            client = SparkClient(lambda: _started(runtime), [self.target], data, files)
            with client.attempt(self.definition.name, execution):
                moves = chosen.moves_workspaces
                transfer = client.transfer_session if moves else None
                yield SparkAccess(client.open, client.end, transfer, client.note)

    def _sweep(self, complain: Callable[[str], None]) -> None:
        for entry in sweep(self.settings.workspace_root).failures:
            complain(f"failed to remove {entry.path}: {entry.reason}")

    def _clean_up(self, execution: Execution, lake: Lake, complain: Callable[[str], None]) -> None:
        """Once more: an interrupt can come between making something and being set to remove it."""
        staging = StagingBranch(self.repository, execution.staging_branch_name)
        try:
            lake.delete_branch(staging)
        except BackendError as error:
            complain(f"failed to clean staging workspace {staging.branch}: {error}")
        for entry in clear(self.settings.workspace_root, execution).entries:
            if entry.fate is not Fate.REMOVED:
                complain(f"failed to remove {entry.path}: {entry.reason}")
