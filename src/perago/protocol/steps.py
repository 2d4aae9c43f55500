"""The steps that file tasks and Spark tasks take in the same way, each only once in here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from perago.errors import (
    BackendError,
    BodyError,
    ConfigurationError,
    GuardrailViolation,
    InputError,
    LostReplyError,
    MixedPublicationError,
    NotFoundError,
    PublishFenceError,
    ResultError,
    UnknownOutcomeError,
)
from perago.masking import mask_data
from perago.protocol.adoption import find_adoptable
from perago.protocol.events import Phases
from perago.protocol.fences import (
    AttemptFence,
    Lease,
    ReplaceAbandoned,
    build_workspace_publication_plan,
)
from perago.protocol.forks import ending_forks
from perago.protocol.identity import Execution
from perago.protocol.job import Check, Job, Ports, StoragePorts, WorkspaceUse
from perago.protocol.json_value import is_too_deep
from perago.protocol.licences import Licence, Licences
from perago.protocol.outcome import checked_output, describe
from perago.protocol.provenance import assert_replaceable, explain_moved
from perago.protocol.publish import Published, Publisher
from perago.protocol.record import Record, read_record, recordable, recorded_params, write_warnings
from perago.protocol.workspace import (
    NamedInput,
    StagedWorkspace,
    StagingBranch,
    WorkspaceInput,
    allows_every_branch,
    assert_allowed,
    describe_validation,
    no_branch,
    not_on_branch,
    parse_input,
    write_inputs,
)

# pydantic repeats a value that it could not serialize, which may be private.
_INPUT_VALUE = re.compile(r"input_value=.*?, (?=input_type=)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The input is valid and its commit exists."""

    workspace: WorkspaceInput
    params: BaseModel
    raw_params: dict[str, Any]
    recorded_params: str | None
    inputs: Mapping[str, NamedInput] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one execution; a life cycle puts them in its order."""

    job: Job
    spec: WorkspaceUse
    execution: Execution
    ports: Ports
    storage: StoragePorts
    phases: Phases
    licences: Licences

    @classmethod
    def of(
        cls, job: Job, spec: WorkspaceUse, execution: Execution, ports: Ports, phases: Phases
    ) -> Steps:
        """Build the steps of an execution; raise where this worker has no LakeFS."""
        storage = ports.storage
        if storage is None:
            raise ConfigurationError("LakeFS is not configured for this worker")
        uses_spark = spec.kind == "spark" or storage.transfers_outlive_worker
        spark = storage.spark if uses_spark else None
        licences = Licences(
            storage.lake,
            ports.clock,
            phases,
            execution,
            landing_seconds=job.landing_seconds,
            end_spark_session=spark.executions.end if spark else None,
        )
        return cls(job, spec, execution, ports, storage, phases, licences)

    @property
    def fence(self) -> AttemptFence:
        return AttemptFence(self.ports.attempts, self.execution.claim, self.ports.clock)

    def pin(self, payload: dict[str, Any]) -> Pinned:
        """Check the input, and that what it names is there."""
        given = parse_input(payload, with_workspace=True, inputs=self.spec.inputs.keys())
        assert given.workspace is not None  # noqa: S101  narrows the type; parse_input checked
        space, lake = given.workspace, self.storage.lake
        for where, place in given.places():
            assert_allowed(place, self.ports.policy.allowed_workspaces, where)
        inputs = {
            name: self.spec.inputs[name].at(place, f"inputs.{name}")
            for name, place in given.inputs.items()
        }
        params = validate_params(self.job, given.params)
        for where, place in given.places():
            self._assert_exists(place, where)
            # Where it publishes, the look at the target and the publish fence ask for more.
            if self.spec.read_only or place is not space:
                self._assert_on_branch(place, where)
        if not self.spec.read_only:
            self._look_at_target(space)
        hard = self.ports.policy.publish_fence == "hard" and not self.spec.read_only
        if hard and not lake.has_fence(space.repository, space.ref):
            raise PublishFenceError(
                f"PERAGO_PUBLISH_FENCE=hard, but the fence is not in commit {space.ref}",
                hint=f"Run `perago fence install {space.repository}`, then start a new "
                "workflow from the branch's HEAD.",
            )
        return Pinned(space, params, given.params, recorded_params(params), inputs)

    def _assert_exists(self, space: WorkspaceInput, where: str) -> None:
        try:
            self.storage.lake.get_commit(space.repository, space.ref)
        except NotFoundError as error:
            raise InputError(
                f"{where}: no commit {space.ref} in repository {space.repository!r}"
            ) from error

    def _assert_on_branch(self, space: WorkspaceInput, where: str) -> None:
        """Refuse a commit of another branch, where this worker may not read every branch."""
        if allows_every_branch(space.repository, self.ports.policy.allowed_workspaces):
            return
        try:
            is_there = self.storage.lake.is_on_branch(space.repository, space.branch, space.ref)
        except NotFoundError as error:
            raise no_branch(space, where) from error
        if not is_there:
            raise not_on_branch(space, where)

    def _look_at_target(self, space: WorkspaceInput) -> None:
        """Fail before any work is done where the publish fence could not let it pass.

        This only ever fails: what it finds permits nothing later on.
        """
        try:
            head = self.storage.lake.get_head(space.repository, space.branch)
        except NotFoundError as error:
            raise no_branch(space, "workspace") from error
        try:
            plan = build_workspace_publication_plan(
                ref=space.ref, head=head, changed=True, branch=space.branch
            )
        except PublishFenceError as error:
            raise explain_moved(head, space, self.execution.attempt) from error
        if isinstance(plan, ReplaceAbandoned) and self.job.recovery != "adopt":
            assert_replaceable(head, self.execution.attempt, self.ports.policy.replacement)

    def adopt(self, pinned: Pinned) -> dict[str, Any] | None:
        """The output of a dead predecessor's publication, where the task asks for that."""
        if self.job.recovery != "adopt" or self.spec.read_only:
            return None
        with self.phases("adopt") as details:
            found = find_adoptable(
                lake=self.storage.lake,
                attempts=self.ports.attempts,
                attempt=self.execution.attempt,
                workspace=pinned.workspace,
                params=pinned.raw_params,
                inputs=pinned.inputs,
                result_model=self.job.result_model,
            )
            details["adopted"] = found is not None
            if found is None:
                return None
            head, result = found
            self.fence.check()
            space = pinned.workspace
            self.licences.withdraw_others(space.repository)
            if self.licences.await_landing():
                self.fence.check()
            if self.storage.lake.get_head(space.repository, space.branch).id != head.id:
                raise PublishFenceError(f"{space.branch!r} moved away from {head.id}")
            details["commit"] = head.id
            executed = check_result(self.job, result, self.phases)
            return self.output(pinned, executed, head.id)

    def record(self, pinned: Pinned, executed: Executed, warnings: Sequence[str]) -> Record:
        """What the commits of this execution will say about it."""
        recorded = None
        if self.job.recovery == "adopt":
            limit = self.ports.policy.max_recorded_result_bytes
            recorded, why_not = recordable(
                executed.result_model, executed.result_payload, max_bytes=limit
            )
            if why_not:
                self.phases.report("result_not_recorded", reason=why_not)
        space, spec, job = pinned.workspace, self.spec, self.job
        return replace(
            Record.of(self.execution, ref=space.ref, params=pinned.raw_params, result=recorded),
            task_name=job.name,
            branch=space.branch,
            prefix=spec.prefix,
            params=pinned.recorded_params,
            code_fingerprint=job.code_fingerprint,
            perago_version=job.perago_version,
            pre_guardrails=spec.pre_guardrails,
            post_guardrails=spec.post_guardrails,
            warnings=write_warnings(warnings),
            inputs=write_inputs(pinned.inputs),
        )

    @contextmanager
    def licence(self, pinned: Pinned) -> Iterator[Licence]:
        """Give the block the execution's licence, and delete its branch at the end.

        Its name is unique to the execution, so deleting is right even when creating it failed.
        It is kept when it is evidence of an unknown outcome or of a mixed publication.
        """
        branch = StagingBranch(pinned.workspace.repository, self.execution.staging_branch_name)
        licence = Licence(self.storage.lake, branch, pinned.workspace.ref)
        evidence = False
        try:
            yield licence
        except (UnknownOutcomeError, MixedPublicationError):
            evidence = True
            raise
        finally:
            if evidence:
                self.phases.report("staging_branch_kept", branch=branch.branch)
            elif licence.requested:
                self._delete(branch)

    def commit(self, staging: StagingBranch, record: Record) -> StagedWorkspace:
        try:
            return self.storage.lake.commit(staging, record.message, record.metadata())
        except LostReplyError as lost:
            return self._find_commit(staging, lost)

    def publish(
        self,
        pinned: Pinned,
        licence: Licence,
        staged: StagedWorkspace | None,
        record: Record,
        lease: Lease,
    ) -> Published:
        """Walk the publish fence with a staged commit, or with nothing (``None``)."""
        publisher = Publisher(
            lake=self.storage.lake,
            clock=self.ports.clock,
            policy=self.ports.policy,
            phases=self.phases,
            fence=self.fence,
            licences=self.licences,
            execution=self.execution,
            workspace=pinned.workspace,
            merge_timeout=self.job.merge_timeout_seconds,
            landing_seconds=self.job.landing_seconds,
        )
        with self.phases("publish") as details:
            published = publisher.publish(licence, staged, record, lease)
            details.update(ref=published.ref, how=published.how, abandoned=published.abandoned)
            return published

    def output(self, pinned: Pinned, executed: Executed, ref: str) -> dict[str, Any]:
        payload = {
            "workspace": pinned.workspace.payload(ref),
            "result": executed.result_payload,
        }
        return checked_output(self.ports, payload)

    def _find_commit(self, staging: StagingBranch, lost: LostReplyError) -> StagedWorkspace:
        """After a lost reply: the commit is ours if it says so, and otherwise unknown."""
        self.phases.report("reply_lost", error=str(lost))
        try:
            head = self.storage.lake.get_head(staging.repository, staging.branch)
        except BackendError as error:
            raise UnknownOutcomeError(f"the reply to the commit was lost: {lost}") from error
        found = read_record(head)
        if found is None or found.execution_id != self.execution.id:
            raise UnknownOutcomeError(f"the reply to the commit was lost: {lost}") from lost
        return StagedWorkspace(staging.repository, staging.branch, head.id)

    def _delete(self, staging: StagingBranch) -> None:
        try:
            self.storage.lake.delete_branch(staging)
        except Exception as error:  # noqa: BLE001  cleanup never changes a result
            self.phases.report(
                "staging_cleanup_failed",
                message="failed to clean staging workspace",
                branch=staging.branch,
                error=str(error),
            )


@dataclass(frozen=True, slots=True)
class Executed:
    """The body returned a result that fits its model and Conductor."""

    result_model: type[BaseModel]
    # What Conductor gets and a commit records: the same data, without the worker's secrets.
    result_payload: Any


def validate_params(job: Job, params: dict[str, Any]) -> BaseModel:
    try:
        found: BaseModel = call_body(lambda: job.parse_params(params), "params model")
    except ValidationError as error:
        raise InputError(f"params: {describe_validation(error, job.param_keys)}") from None
    return found


def call_body(call: Callable[[], Any], what: str = "task body") -> Any:
    """Run an author's code; whatever it raises must end the attempt and not the worker."""
    try:
        with ending_forks():
            return call()
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as error:
        code: object = error.code
        shown = repr(code) if isinstance(code, int | str | None) else type(code).__name__
        raise BodyError(f"the {what} called sys.exit({shown})") from error
    except BaseException as error:  # asyncio.CancelledError, for one
        raise BodyError(f"the {what} raised {type(error).__name__}: {describe(error)}") from error


def check_guardrails(
    check: Check, data: Any, violation: type[GuardrailViolation], phases: Phases
) -> list[str]:
    """Run guardrails, report each warning, and return the warnings.

    Only a violation is a guardrail failure; anything else a guardrail raises is a failure.
    """
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(describe(text))
        phases.report("guardrail_warned", message=warnings[-1])

    try:
        call_body(lambda: check(data, warn), "guardrail")
    except GuardrailViolation as error:
        raise violation(describe(error)) from error
    return warnings


def check_result(job: Job, value: Any, phases: Phases) -> Executed:
    """Check the result against its model and write it as JSON data without secrets."""
    try:
        executed: Executed = call_body(lambda: _dump_result(job, value), "result model")
    except ValidationError as error:
        model = job.result_model.__name__
        raise ResultError(
            f"the result does not fit {model}: {describe_validation(error)}"
        ) from None
    except (ValueError, RecursionError) as error:
        # Without the cause, whose text has the value.
        said = _INPUT_VALUE.sub("", describe(error))
        raise ResultError(f"the result cannot be written as JSON: {said}") from None
    if is_too_deep(executed.result_payload):
        return executed  # which the check of the output refuses
    masked = mask_data(executed.result_payload)
    if masked != executed.result_payload:
        phases.report("result_masked", message="a secret of this worker in the result is masked")
    return replace(executed, result_payload=masked)


def _dump_result(job: Job, value: Any) -> Executed:
    result = job.result_model.model_validate(value)
    return Executed(type(result), result.model_dump(mode="json", by_alias=True, warnings="error"))
