"""Perago: typed Python functions as transactions over LakeFS, run by Conductor."""

from perago.errors import GuardrailViolation, PeragoError, TaskFailed, TaskTerminalError

__all__ = ["GuardrailViolation", "PeragoError", "TaskFailed", "TaskTerminalError"]
