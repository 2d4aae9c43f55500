"""Perago: typed Python functions as transactions over LakeFS, run by Conductor.

The public names are loaded when first used, so that the command line starts quickly and nothing
heavy comes along with ``from perago import task``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perago.errors import GuardrailViolation, PeragoError, TaskFailed, TaskTerminalError
    from perago.tasks.controls import (
        ExecutionLimits,
        PublishBudget,
        RetryPolicy,
        TaskControls,
        TimeoutPolicy,
    )
    from perago.tasks.data import require_not_null, require_rows, require_schema, require_unique
    from perago.tasks.definition import task
    from perago.tasks.guardrails import forbid_glob, require_dir, require_file, require_glob
    from perago.tasks.spark import SparkWorkspace
    from perago.tasks.spec import WorkspaceSpec

__all__ = [
    "ExecutionLimits",
    "GuardrailViolation",
    "PeragoError",
    "PublishBudget",
    "RetryPolicy",
    "SparkWorkspace",
    "TaskControls",
    "TaskFailed",
    "TaskTerminalError",
    "TimeoutPolicy",
    "WorkspaceSpec",
    "forbid_glob",
    "require_dir",
    "require_file",
    "require_glob",
    "require_not_null",
    "require_rows",
    "require_schema",
    "require_unique",
    "task",
]

_HOMES = {
    "perago.errors": ("GuardrailViolation", "PeragoError", "TaskFailed", "TaskTerminalError"),
    "perago.tasks.controls": (
        "ExecutionLimits",
        "PublishBudget",
        "RetryPolicy",
        "TaskControls",
        "TimeoutPolicy",
    ),
    "perago.tasks.data": (
        "require_not_null",
        "require_rows",
        "require_schema",
        "require_unique",
    ),
    "perago.tasks.definition": ("task",),
    "perago.tasks.guardrails": ("forbid_glob", "require_dir", "require_file", "require_glob"),
    "perago.tasks.spark": ("SparkWorkspace",),
    "perago.tasks.spec": ("WorkspaceSpec",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'perago' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
