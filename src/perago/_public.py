"""The public names of :mod:`perago`, and the only list of them.

``perago`` loads this module when one of the names is first used. ``import X as X`` marks a name as
exported for type checkers.
"""

from perago.errors import GuardrailViolation as GuardrailViolation
from perago.errors import PeragoError as PeragoError
from perago.errors import TaskFailed as TaskFailed
from perago.errors import TaskTerminalError as TaskTerminalError
from perago.tasks.changes import WorkspaceChanges as WorkspaceChanges
from perago.tasks.context import TaskContext as TaskContext
from perago.tasks.context import context as context
from perago.tasks.controls import ExecutionLimits as ExecutionLimits
from perago.tasks.controls import PublishBudget as PublishBudget
from perago.tasks.controls import RetryPolicy as RetryPolicy
from perago.tasks.controls import TaskControls as TaskControls
from perago.tasks.controls import TimeoutPolicy as TimeoutPolicy
from perago.tasks.data import require_not_null as require_not_null
from perago.tasks.data import require_rows as require_rows
from perago.tasks.data import require_schema as require_schema
from perago.tasks.data import require_unique as require_unique
from perago.tasks.definition import task as task
from perago.tasks.guardrails import forbid_glob as forbid_glob
from perago.tasks.guardrails import require_dir as require_dir
from perago.tasks.guardrails import require_file as require_file
from perago.tasks.guardrails import require_glob as require_glob
from perago.tasks.spark import SparkWorkspace as SparkWorkspace
from perago.tasks.spec import InputSpec as InputSpec
from perago.tasks.spec import WorkspaceSpec as WorkspaceSpec
