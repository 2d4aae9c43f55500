"""An execution to make directories for."""

from __future__ import annotations

from perago.protocol.identity import Attempt, Claim, Execution


def an_execution(task_id: str = "task-1", execution_id: str = "exec-1") -> Execution:
    return Execution(Claim(Attempt("workflow-1", task_id, 2, "clean"), "token"), execution_id)
