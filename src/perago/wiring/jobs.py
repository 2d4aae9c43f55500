"""Jobs from task definitions: a task as the life cycle sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from perago.protocol.job import (
    DEFAULT_LANDING_SECONDS,
    DEFAULT_MERGE_TIMEOUT_SECONDS,
    InputUse,
    Job,
    WorkspaceUse,
)
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
    )


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
    )
