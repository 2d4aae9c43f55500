"""Jobs from task definitions, and contexts from executions: what a life cycle and a body get."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from perago.protocol.events import EventSink, PhaseEvent
from perago.protocol.identity import Execution
from perago.protocol.job import (
    DEFAULT_LANDING_SECONDS,
    DEFAULT_MERGE_TIMEOUT_SECONDS,
    InputUse,
    Job,
    WorkspaceUse,
)
from perago.tasks.context import AttemptState, TaskContext
from perago.tasks.definition import TaskDefinition
from perago.tasks.guardrails import Guardrail, Warn, check_folder, check_spark


def build_job(definition: TaskDefinition) -> Job:
    """Build the job of a task definition."""
    budget = definition.controls.publish_budget
    timeout, landing = DEFAULT_MERGE_TIMEOUT_SECONDS, DEFAULT_LANDING_SECONDS
    if budget is not None:
        timeout = budget.lakefs_merge_timeout_seconds
        landing = budget.observed_merge_p99_seconds + budget.safety_margin_seconds
    return Job(
        name=definition.name,
        params_model=definition.params_model,
        result_model=definition.result_model,
        body=definition.function,
        workspace=_build_workspace_use(definition),
        recovery=definition.controls.recovery,
        merge_timeout_seconds=timeout,
        landing_seconds=landing,
        code_fingerprint=_fingerprint(definition.function),
        perago_version=_version(),
    )


def build_context(
    task: str,
    execution: Execution,
    events: EventSink,
    ask: Callable[[], AttemptState] = AttemptState,
) -> TaskContext:
    """Build what ``perago.context()`` returns in the body of an execution."""
    attempt = execution.attempt

    def tell(done: float, total: float | None) -> None:
        events(PhaseEvent("task_progress", "body", None, {"done": done, "total": total}))

    return TaskContext(
        task=task,
        workflow_id=attempt.workflow_instance_id,
        task_id=attempt.task_id,
        execution_id=execution.id,
        attempt_number=attempt.retry_count + 1,
        _ask=ask,
        _tell=tell,
    )


def _version() -> str | None:
    """The version of Perago; None where it runs from its source, without being installed."""
    try:
        return version("perago-spark")
    except PackageNotFoundError:
        return None


def _fingerprint(function: Callable[..., Any]) -> str | None:
    """The SHA-256 of the file in which a task is defined: what ``sha256sum`` prints for it.

    It is read when the job is built, just after the import. What the module imports is not in it.
    """
    module = sys.modules.get(inspect.unwrap(function).__module__)
    file = getattr(module, "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except OSError:  # imported from an archive, or the file is gone
        return None


def _build_workspace_use(definition: TaskDefinition) -> WorkspaceUse | None:
    spec = definition.workspace
    if spec is None:
        return None
    kind: Literal["file", "spark"] = "spark" if definition.kind == "spark" else "file"
    check: Callable[[Sequence[Guardrail], Any, Warn], None] = (
        check_spark if kind == "spark" else check_folder
    )
    return WorkspaceUse(
        prefix=spec.normal_prefix,
        read_only=spec.read_only,
        check_pre=partial(check, spec.pre),
        check_post=partial(check, spec.post),
        kind=kind,
        inputs={
            name: InputUse(it.normal_prefix, it.repository) for name, it in spec.inputs.items()
        },
        pre_guardrails=len(spec.pre),
        post_guardrails=len(spec.post),
    )
