"""The life cycle of a Spark task, from top to bottom (protocol section 9).

Spark's executors read and write LakeFS themselves, so the order differs from a file task's: the
staging branch is there before the body, and what the body wrote is judged on the staged commit,
which nothing that still runs can change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from perago.errors import (
    BackendError,
    ConfigurationError,
    FailedWriteError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    ProjectionError,
    SparkServerDiedError,
    TaskFailed,
    TaskTerminalError,
    UnfinishedOperationError,
)
from perago.names import split_deletes
from perago.protocol.job import SparkPorts
from perago.protocol.last_seen import LastPublication
from perago.protocol.leftovers import Boundary
from perago.protocol.ports import SparkExecution
from perago.protocol.steps import Executed, Pinned, Steps, call_body, check_guardrails, check_result
from perago.protocol.workspace import StagedWorkspace, StagingBranch
from perago.text import first_lines, quote_path


def run_spark_task(steps: Steps, payload: dict[str, Any]) -> dict[str, Any]:
    """Pin the input and run the body in a Spark session of this execution's own."""
    phases, spec = steps.phases, steps.spec
    with phases("validate"):
        pinned = steps.pin(payload)
    if (adopted := steps.adopt(pinned)) is not None:
        return adopted
    ports = _spark_ports(steps)
    with ExitStack() as closing:
        with phases("session"):
            opening = ports.executions.open(
                steps.execution,
                pinned.workspace,
                spec.prefix,
                pinned.inputs,
                LastPublication(
                    steps.storage.lake,
                    ports.objects,
                    pinned.workspace,
                    steps.job.name,
                    spec.prefix,
                ),
            )
            spark = closing.enter_context(opening)
        with phases("pre_guardrails"):
            view = spark.workspace(pinned.workspace.ref)
            warnings = check_guardrails(spec.check_pre, view, PreGuardrailViolation, phases)
        if spec.read_only:
            return _ReadOnly(steps, ports, spark, pinned, warnings).run()
        return _Writable(steps, ports, spark, pinned, warnings).run()


@dataclass(frozen=True, slots=True)
class _Run:
    steps: Steps
    ports: SparkPorts
    spark: SparkExecution
    pinned: Pinned
    # Of the guardrails so far.
    warnings: list[str]

    def _execute(self, workspace: Any) -> Executed:
        """Run the body; fail if it left an operation running or a write failed.

        An interrupted job leaves part of a table behind, which looks like a whole one, and a failed
        overwrite has deleted the table.
        """
        steps, phases = self.steps, self.steps.phases
        with self._interrupted_on_failure(), phases("body"):
            value = call_body(lambda: steps.job.body(workspace, self.pinned.params))
        with phases("end_operations") as details:
            interrupted = self.spark.end_operations()
            details["interrupted"] = interrupted
            if interrupted:
                raise UnfinishedOperationError(
                    f"the body returned while {interrupted} of its Spark operations still ran; "
                    "they were interrupted and nothing was published"
                )
            self._require_written()
        with phases("check_result"):
            executed = check_result(steps.job, value, phases)
            steps.output(self.pinned, executed, self.pinned.workspace.ref)
        return executed

    def _require_written(self) -> None:
        failed, shown = first_lines(map(quote_path, self.spark.failed_writes()))
        if failed:
            raise FailedWriteError(
                f"the body went on after {failed} failed writes, which may have deleted what was "
                f"there; nothing was published:\n{shown}"
            )

    @contextmanager
    def _interrupted_on_failure(self) -> Iterator[None]:
        """A body that fails must not go on writing while its branch is deleted."""
        try:
            yield
        except Exception as error:
            try:
                self.spark.end_operations()
            except SparkServerDiedError as died:
                # Spark's client has no words for it; what the author says on purpose stands.
                if not isinstance(error, TaskFailed | TaskTerminalError):
                    raise died from error
            except BackendError:
                pass  # the body's own error is the one to report
            raise

    def _check_post(self, ref: str) -> None:
        steps = self.steps
        with steps.phases("post_guardrails"):
            view = self.spark.workspace(ref)
            self.warnings.extend(
                check_guardrails(steps.spec.check_post, view, PostGuardrailViolation, steps.phases)
            )


class _ReadOnly(_Run):
    """No output, no staging branch, no fence: the result is all there is."""

    __slots__ = ()

    def run(self) -> dict[str, Any]:
        ref = self.pinned.workspace.ref
        executed = self._execute(self.spark.workspace(ref))
        self._check_post(ref)
        return self.steps.output(self.pinned, executed, ref)


class _Writable(_Run):
    """Fence, branch, body, commit, fence, publish."""

    __slots__ = ()

    def run(self) -> dict[str, Any]:
        steps, phases, pinned = self.steps, self.steps.phases, self.pinned
        ref = pinned.workspace.ref
        with phases("first_fence"):
            steps.fence.check()
        with phases("withdraw"):
            # A dead predecessor's job stops writing and computing now, not at the publication.
            steps.licences.withdraw_others(pinned.workspace.repository)
        with steps.licence(pinned) as licence:
            staging = licence.branch
            with phases("branch"):
                licence.create()
            executed = self._execute(self.spark.workspace(ref, staging))
            with phases("diff") as details:
                changed = self._tidy(staging, details)
            record = steps.record(pinned, executed, self.warnings)
            staged: StagedWorkspace | None = None
            if changed:
                with phases("commit"):
                    staged = steps.commit(staging, record)
                with phases("check_commit"):
                    self._check_commit(staged)
            self._check_post(staged.commit if staged else ref)
            # The staged commit was made before these guardrails ran.
            record = record.with_warnings(self.warnings)
            with phases("second_fence"):
                lease = steps.fence.check()
            published = steps.publish(pinned, licence, staged, record, lease)
        return steps.output(pinned, executed, published.ref)

    def _tidy(self, staging: StagingBranch, details: dict[str, Any]) -> bool:
        """Remove leftovers; whether anything else differs from the input."""
        counts, leftovers = self._survey(staging)
        for keys in split_deletes(leftovers):
            self.ports.objects.delete(staging.repository, staging.branch, keys)
        details.update(counts, leftovers=len(leftovers))
        return any(counts.values())

    def _survey(self, staging: StagingBranch) -> tuple[Counter[str], list[str]]:
        boundary = Boundary(self.steps.spec.prefix)
        counts: Counter[str] = Counter(added=0, changed=0, removed=0)
        leftovers: list[str] = []
        for change in self.ports.objects.uncommitted(staging):
            if boundary.is_leftover(change):
                leftovers.append(change.key)
            else:
                counts[change.kind] += 1
        return counts, leftovers

    def _check_commit(self, staged: StagedWorkspace) -> None:
        """The branch could still change when it was surveyed; the commit cannot."""
        boundary = Boundary(self.steps.spec.prefix)
        found = self.ports.objects.changes(
            staged.repository, self.pinned.workspace.ref, staged.commit
        )
        refused, shown = first_lines(
            f"{quote_path(change.key)} ({change.kind}): {why}"
            for change, why in boundary.refusals(found)
        )
        if refused:
            raise ProjectionError(
                f"{refused} changes cannot be published:\n{shown}",
                hint="Write below workspace.output() only, and wait in the body for every job "
                "that it starts.",
            )


def _spark_ports(steps: Steps) -> SparkPorts:
    if steps.storage.spark is None:
        raise ConfigurationError(
            "this worker has no Spark", hint="Set SPARK_REMOTE or PERAGO_SPARK_MASTER."
        )
    return steps.storage.spark
