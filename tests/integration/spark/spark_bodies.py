"""Tasks that count as Spark tasks, whose bodies need nothing of Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, task
from perago.tasks.definition import TaskDefinition, definition_of

CONTROLS = TaskControls(
    retry=RetryPolicy(count=2, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=5)
)


@dataclass(frozen=True)
class _SparkDefinition(TaskDefinition):
    kind: Any = "spark"


class Params(BaseModel):
    """What a body does."""

    do: str = ""
    signs: str = ""


class Result(BaseModel):
    """Who ran it."""

    pid: int = 0


@task(name="w_plain", owner_email="tests@example.com", controls=CONTROLS)
def w_plain(params: Params) -> Result:
    """End the process the first time, if told so."""
    sign = Path(params.signs) / "crashed" if params.signs else None
    if params.do == "exit-first-time" and sign is not None and not sign.exists():
        sign.touch()
        os._exit(7)
    return Result(pid=os.getpid())


_definition = definition_of(w_plain)
assert _definition is not None
_values = {item.name: getattr(_definition, item.name) for item in fields(_definition)}
w_plain.__perago_task__ = _SparkDefinition(**{**_values, "kind": "spark"})  # type: ignore[attr-defined]
