"""The life cycle of an attempt, from top to bottom.

Each step takes what the step before produced: ``Pinned`` → ``Executed`` → ``StagedWorkspace`` →
``Published``. Whatever a step raises becomes the attempt's outcome in one place, ``run_attempt``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perago.errors import (
    BackendError,
    InputError,
    LostReplyError,
    MixedPublicationError,
    NotFoundError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    UnknownOutcomeError,
)
from perago.protocol.adoption import find_adoptable, recordable
from perago.protocol.checks import (
    Executed,
    call_body,
    check_guardrails,
    check_result,
    checked_output,
    validate_params,
)
from perago.protocol.events import Phases
from perago.protocol.identity import Execution
from perago.protocol.job import Job, Ports, Workspace
from perago.protocol.lease import AttemptFence
from perago.protocol.outcome import Completed, Outcome, failure_of
from perago.protocol.ports import AttemptDirectory, Changes
from perago.protocol.publish import Published, Publisher
from perago.protocol.record import Record, read_record
from perago.protocol.workspace import (
    StagedWorkspace,
    StagingBranch,
    WorkspaceInput,
    parse_input,
)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The input is valid and its commit exists."""

    workspace: WorkspaceInput
    params: BaseModel
    raw_params: dict[str, Any]


def run_attempt(job: Job, execution: Execution, payload: dict[str, Any], ports: Ports) -> Outcome:
    """Run one attempt as a transaction. Never raises for what the attempt does."""
    phases = Phases(ports.events, ports.clock)
    try:
        if job.workspace is None:
            return Completed(_run_without_workspace(job, payload, ports, phases))
        return Completed(_Transaction(job, job.workspace, execution, ports, phases).run(payload))
    except Exception as error:  # noqa: BLE001  the one place where failures become outcomes
        return failure_of(error)


def _run_without_workspace(
    job: Job, payload: dict[str, Any], ports: Ports, phases: Phases
) -> dict[str, Any]:
    with phases("validate"):
        params = validate_params(job, parse_input(payload, with_workspace=False).params)
    with phases("body"):
        value = call_body(lambda: job.body(params))
    with phases("check_result"):
        executed = check_result(job, value)
        return checked_output(ports, {"result": executed.result_payload})


@dataclass(frozen=True, slots=True)
class _Transaction:
    job: Job
    spec: Workspace
    execution: Execution
    ports: Ports
    phases: Phases

    def run(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Steps 1 to 10 of the protocol; reporting (11) is the worker's."""
        phases = self.phases
        with phases("validate"):
            pinned = self._pin(payload)
        if self.job.recovery == "adopt" and not self.spec.read_only:
            with phases("adopt") as details:
                adopted = self._adopt(pinned, details)
            if adopted is not None:
                return adopted
        with self.ports.workspaces.open(self.execution) as directory:
            with phases("download") as details:
                details.update(directory.fetch(pinned.workspace, self.spec.prefix))
            with phases("pre_guardrails"):
                check_guardrails(self.spec.check_pre, directory.data, PreGuardrailViolation)
            with phases("body"):
                value = call_body(lambda: self.job.body(directory.data, pinned.params))
            with phases("check_result"):
                executed = check_result(self.job, value)
                output = self._output(pinned, executed, pinned.workspace.ref)
            with phases("post_guardrails"):
                check_guardrails(self.spec.check_post, directory.data, PostGuardrailViolation)
            if self.spec.read_only:
                return output
            published = self._publish(pinned, executed, directory)
        return self._output(pinned, executed, published.ref)

    def _pin(self, payload: dict[str, Any]) -> Pinned:
        given = parse_input(payload, with_workspace=True)
        assert given.workspace is not None  # noqa: S101  narrows the type; parse_input checked
        params = validate_params(self.job, given.params)
        space, lake = given.workspace, self.ports.lake
        try:
            lake.get_commit(space.repository, space.ref)
        except NotFoundError as error:
            raise InputError(
                f"workspace: no commit {space.ref} in repository {space.repository!r}"
            ) from error
        hard = self.ports.policy.publish_fence == "hard" and not self.spec.read_only
        if hard and not lake.has_fence(space.repository, space.ref):
            raise PublishFenceError(
                f"PERAGO_PUBLISH_FENCE=hard, but the fence is not in commit {space.ref}",
                hint=f"Run `perago fence install {space.repository}`, then start a new "
                "workflow from the branch's HEAD.",
            )
        return Pinned(space, params, given.params)

    def _adopt(self, pinned: Pinned, details: dict[str, Any]) -> dict[str, Any] | None:
        found = find_adoptable(
            lake=self.ports.lake,
            attempts=self.ports.attempts,
            attempt=self.execution.attempt,
            workspace=pinned.workspace,
            params=pinned.raw_params,
            result_model=self.job.result_model,
        )
        details["adopted"] = found is not None
        if found is None:
            return None
        head, result = found
        self._fence().check()
        details["commit"] = head.id
        return self._output(pinned, check_result(self.job, result), head.id)

    def _publish(
        self, pinned: Pinned, executed: Executed, directory: AttemptDirectory
    ) -> Published:
        """The writable path: fence, stage, fence, publish."""
        phases, fence = self.phases, self._fence()
        with phases("first_fence"):
            lease = fence.check()
        with phases("diff") as details:
            changes = directory.changes()
            details.update(changes.summary())
        record = self._record(pinned, executed)
        publisher = Publisher(
            lake=self.ports.lake,
            clock=self.ports.clock,
            policy=self.ports.policy,
            phases=phases,
            fence=fence,
            execution=self.execution,
            workspace=pinned.workspace,
            merge_timeout=self.job.merge_timeout_seconds,
            message=_message(self.job, record),
        )
        if not changes:
            with phases("publish") as details:
                return _described(publisher.publish(None, record, lease), details)
        staging = StagingBranch(pinned.workspace.repository, self.execution.staging_branch_name)
        with self._staging_branch(staging):
            with phases("stage") as details:
                details.update(changes.summary())
                staged = self._stage(directory, changes, staging, pinned.workspace.ref, record)
            with phases("second_fence"):
                lease = fence.check()
            with phases("publish") as details:
                return _described(publisher.publish(staged, record, lease), details)

    def _stage(
        self,
        directory: AttemptDirectory,
        changes: Changes,
        staging: StagingBranch,
        ref: str,
        record: Record,
    ) -> StagedWorkspace:
        lake = self.ports.lake
        lake.create_branch(staging, ref)
        directory.stage(changes, staging)
        try:
            return lake.commit(staging, _message(self.job, record), record.metadata())
        except LostReplyError as lost:
            return self._find_commit(staging, lost)

    def _find_commit(self, staging: StagingBranch, lost: LostReplyError) -> StagedWorkspace:
        """After a lost reply: the commit is ours if it says so, and otherwise unknown."""
        self.phases.tell("reply_lost", error=str(lost))
        try:
            head = self.ports.lake.get_head(staging.repository, staging.branch)
        except BackendError as error:
            raise UnknownOutcomeError(f"the reply to the commit was lost: {lost}") from error
        found = read_record(head)
        if found is None or found.execution_id != self.execution.id:
            raise UnknownOutcomeError(f"the reply to the commit was lost: {lost}") from lost
        return StagedWorkspace(staging.repository, staging.branch, head.id)

    @contextmanager
    def _staging_branch(self, staging: StagingBranch) -> Iterator[None]:
        """Delete the branch at the end, whatever happened, unless it is evidence.

        Its name is unique to the execution, so deleting is right even when creating it failed.
        """
        evidence = False
        try:
            yield
        except (UnknownOutcomeError, MixedPublicationError):
            evidence = True
            raise
        finally:
            if evidence:
                self.phases.tell("staging_branch_kept", branch=staging.branch)
            else:
                self._delete(staging)

    def _delete(self, staging: StagingBranch) -> None:
        try:
            self.ports.lake.delete_branch(staging)
        except Exception as error:  # noqa: BLE001  cleanup never changes a result
            self.phases.tell(
                "staging_cleanup_failed",
                message="failed to clean staging workspace",
                branch=staging.branch,
                error=str(error),
            )

    def _record(self, pinned: Pinned, executed: Executed) -> Record:
        recorded = None
        if self.job.recovery == "adopt":
            limit = self.ports.policy.max_recorded_result_bytes
            recorded, why_not = recordable(executed.result, max_bytes=limit)
            if why_not:
                self.phases.tell("result_not_recorded", reason=why_not)
        return Record.of(
            self.execution, ref=pinned.workspace.ref, params=pinned.raw_params, result=recorded
        )

    def _fence(self) -> AttemptFence:
        return AttemptFence(self.ports.attempts, self.execution.claim, self.ports.clock)

    def _output(self, pinned: Pinned, executed: Executed, ref: str) -> dict[str, Any]:
        payload = {
            "workspace": pinned.workspace.payload(ref),
            "result": executed.result_payload,
        }
        return checked_output(self.ports, payload)


def _message(job: Job, record: Record) -> str:
    """A commit message for people; nothing reads it."""
    return f"{job.name}: {record.reference_name} of workflow {record.workflow_instance_id}"


def _described(published: Published, details: dict[str, Any]) -> Published:
    details.update(ref=published.ref, how=published.how, abandoned=published.abandoned)
    return published
