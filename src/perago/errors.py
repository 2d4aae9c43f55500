"""Every error of Perago, in one tree.

PeragoError
├── DefinitionError              a task is written in a way that cannot run
├── ConfigurationError           a setting is missing or wrong
├── SetupError                   an embedded server cannot be obtained or started here
├── MachineError                 the machine is out of space, files or memory
├── InputError                   the Conductor input does not fit the task
├── GuardrailViolation           raised by guardrails, an author's own included
│   ├── PreGuardrailViolation    the input workspace breaks the task's contract: terminal
│   └── PostGuardrailViolation   the body left a workspace that breaks the contract
├── TaskFailed                   raised by an author: this attempt failed, a retry may help
├── TaskTerminalError            raised by an author: no retry will help
├── BodyError                    the body (or a guardrail) tried to end the process
├── BodyTimeoutError             the body ran past its deadline
├── AttemptTimeoutError          the whole attempt ran past its deadline
├── ExecutorDiedError            the process that ran the body ended
├── UnfinishedOperationError     the body returned while its Spark operations still ran
├── FailedWriteError             a Spark write failed and the body did not repeat it
├── UnsupportedOperationError    Spark was asked for what cannot be part of a transaction
├── ResultError                  the result does not fit its model or is too large
├── ProjectionError              a key or file that cannot be part of a workspace
├── StaleAttemptError            attempt fence: this attempt is no longer the current one
├── PublishFenceError            publish fence: the target branch is not where it should be
│   └── MixedPublicationError    the read-back found another publication below ours
├── NotPublishedError            the reply was lost, and the request certainly did not land
├── UnknownOutcomeError          a request was sent and it cannot be known whether it landed
├── RestoreError                 what a tag keeps cannot be brought back to the branch
└── BackendError                 a server did not do what was asked
    ├── BackendUnavailableError  no answer, or an answer that says "later"
    │   └── LostReplyError         a change was asked for and the reply was lost
    ├── BackendDeniedError       credentials or rights are missing
    ├── BackendRefusedError      the server understood and said no
    │   ├── NotFoundError
    │   ├── ConflictError
    │   └── PreconditionError    a condition that the server itself checks does not hold (a hook)
    ├── SparkServerDiedError     the Spark server that an attempt used is gone
    └── ServerError              an embedded server died or did not become healthy

Each class carries what a caller needs to act: a stable ``code`` with an entry in docs/errors.md,
a ``hint`` that says what to do, a ``disposition`` that says what Conductor is told, and the
``exit_code`` of a command that ends with it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from perago.names import ACTIONS_FOLDER


class Disposition(StrEnum):
    """What a failed attempt means for Conductor."""

    RETRY = "FAILED"
    TERMINAL = "FAILED_WITH_TERMINAL_ERROR"


class PeragoError(Exception):
    """The base of everything Perago raises on purpose."""

    code: ClassVar[str] = "PRG-000"
    hint: str = "This is a bug in Perago: report it with the log around this line."
    disposition: ClassVar[Disposition] = Disposition.RETRY
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class DefinitionError(PeragoError):
    """A task is written in a way that cannot run."""

    code = "PRG-101"
    hint = "Correct the definition, then run `perago check MODULE`."
    exit_code = 2


class ConfigurationError(PeragoError):
    """A setting is missing or wrong."""

    code = "PRG-102"
    hint = "Set the value named above; `perago config show` says where each value comes from."
    exit_code = 2


class SetupError(PeragoError):
    """An embedded server cannot be obtained or started on this machine."""

    code = "PRG-103"
    hint = "Read the server's log, then run the command again."
    exit_code = 2


class MachineError(PeragoError):
    """The machine is out of disk space, open files or memory, or its disk cannot be written."""

    code = "PRG-104"
    hint = "Look at the machine's disk and memory."


class InputError(PeragoError):
    """The Conductor input does not fit the task."""

    code = "PRG-201"
    hint = "Correct the task's inputParameters in the workflow definition."


class GuardrailViolation(PeragoError):  # noqa: N818  the protocol's own name
    """A workspace does not hold what a guardrail asks for."""

    code = "PRG-210"
    hint = "Compare the workspace with the guardrails of the task."


class PreGuardrailViolation(GuardrailViolation):
    """The input workspace breaks the task's contract; a retry reads the same commit again."""

    code = "PRG-211"
    hint = "Correct the step that produced this workspace, then start a new workflow."
    disposition = Disposition.TERMINAL


class PostGuardrailViolation(GuardrailViolation):
    """The body left a workspace that breaks the task's contract."""

    code = "PRG-212"
    hint = "Correct the task body: what it wrote does not meet its own guardrails."


class TaskFailed(PeragoError):  # noqa: N818  the protocol's own name
    """Raised by an author: this attempt failed, a retry may help."""

    code = "PRG-301"
    hint = "The task said so on purpose; its message has the reason."


class TaskTerminalError(PeragoError):
    """Raised by an author: no retry will help."""

    code = "PRG-302"
    hint = "The task said so on purpose; its message has the reason."
    disposition = Disposition.TERMINAL


class BodyError(PeragoError):
    """The task body tried to end the process it runs in."""

    code = "PRG-303"
    hint = "Return from the task or raise TaskFailed; sys.exit() belongs into scripts."


class BodyTimeoutError(PeragoError):
    """The body ran past its deadline."""

    code = "PRG-304"
    hint = "Raise the deadline in TimeoutPolicy, or make the task do less."


class AttemptTimeoutError(PeragoError):
    """The attempt, from its claim on, ran past its deadline."""

    code = "PRG-307"
    hint = "Raise attempt_seconds in TimeoutPolicy; the log says how long each phase took."


class ExecutorDiedError(PeragoError):
    """The process that ran the attempt ended before it had an outcome."""

    code = "PRG-306"
    hint = "SIGKILL is often the kernel short of memory; an exit code is often the body's own."


class UnfinishedOperationError(PeragoError):
    """The body returned while Spark operations that it had started still ran."""

    code = "PRG-308"
    hint = "Wait in the body for every job it starts: join threads, and stop streaming queries."


class FailedWriteError(PeragoError):
    """The body returned, and a write to its workspace had failed and was not repeated."""

    code = "PRG-309"
    hint = "Let the write's error end the body, or write the same path again with success."


class UnsupportedOperationError(PeragoError):
    """A Spark session was asked for something that cannot be part of a transaction."""

    code = "PRG-310"
    hint = "Write with workspace.write, and name data in SQL with workspace.sql_path."


class ResultError(PeragoError):
    """The result does not fit its model or is too large for Conductor."""

    code = "PRG-305"
    hint = "Return the declared model; put large data into the workspace, not into the result."


class ProjectionError(PeragoError):
    """A key or a file that cannot be part of a workspace."""

    code = "PRG-401"
    hint = "Rename or remove what is listed above."


class StaleAttemptError(PeragoError):
    """This attempt is no longer the one Conductor waits for."""

    code = "PRG-501"
    hint = "Nothing was published by this attempt; look at the task's later attempts."
    exit_code = 4


class PublishFenceError(PeragoError):
    """The target branch is not where this attempt may move it."""

    code = "PRG-502"
    hint = "Find out who moved the branch, then start a new workflow from its current HEAD."
    exit_code = 4


class MixedPublicationError(PublishFenceError):
    """The commit was published on top of another one that slipped in after the check."""

    code = "PRG-504"
    hint = (
        "Two writers share the branch. Compare HEAD with the staged commit, which was kept, "
        "and install the hard fence: perago fence install REPOSITORY."
    )


class NotPublishedError(PeragoError):
    """The reply to a publication was lost; it did not land and no longer can."""

    code = "PRG-505"
    hint = "Nothing was published; Conductor's retry policy decides about another attempt."
    exit_code = 3


class UnknownOutcomeError(PeragoError):
    """A request was sent and it cannot be said whether it landed."""

    code = "PRG-503"
    hint = "Compare the target branch with the staged commit, which was kept."
    exit_code = 5


class RestoreError(PeragoError):
    """What a tag keeps cannot be brought back to the branch without a person's judgement."""

    code = "PRG-609"
    hint = "Make a branch from the tag with your LakeFS client, and merge what you need by hand."
    exit_code = 4


class BackendError(PeragoError):
    """A server did not do what was asked."""

    code = "PRG-600"
    hint = "Read the server's answer above."
    exit_code = 3


class BackendUnavailableError(BackendError):
    """No answer, or an answer that says "later"."""

    code = "PRG-601"
    hint = "Check that the server is up and reachable from this machine."


class LostReplyError(BackendUnavailableError):
    """A change was asked for and the reply was lost: it may or may not have been made."""

    code = "PRG-607"


class BackendDeniedError(BackendError):
    """Credentials or rights are missing."""

    code = "PRG-602"
    hint = "Check the credentials and what their user may do."


class BackendRefusedError(BackendError):
    """The server understood the request and said no."""

    code = "PRG-603"


class NotFoundError(BackendRefusedError):
    """What was asked for is not there."""

    code = "PRG-604"
    hint = "Check the repository, branch or task id named above."


class ConflictError(BackendRefusedError):
    """What was asked for clashes with what is there."""

    code = "PRG-605"


class ServerError(BackendError):
    """An embedded server died, or did not become healthy in its time."""

    code = "PRG-606"
    hint = "Read the whole log with `perago dev logs`, then start the stack again."


class SparkServerDiedError(BackendError):
    """The Spark server that an attempt used ended, or nothing listens there any more."""

    code = "PRG-311"
    hint = (
        "Nothing was published, and a retry gets a new server. If memory was short, set "
        "spark.driver.memory, or make the task collect less; the server's log has the details."
    )


class PreconditionError(BackendRefusedError):
    """A condition that the server itself checks does not hold; in LakeFS, a hook said no."""

    code = "PRG-608"
    hint = f"Read the hook's message above; the actions are in the repository's {ACTIONS_FOLDER}."


# These say something about the machine and its servers, and nothing about a task.
INFRASTRUCTURE = (
    BackendDeniedError,
    BackendUnavailableError,
    ConfigurationError,
    MachineError,
    ServerError,
    SetupError,
)

# Every kind of error by its code, in the order of the codes.
KINDS: dict[str, type[PeragoError]] = dict(
    sorted(
        (kind.code, kind)
        for kind in tuple(globals().values())
        if isinstance(kind, type) and issubclass(kind, PeragoError)
    )
)
_NAMED = {kind.__name__: kind for kind in KINDS.values()}


def find_kind(word: str) -> type[PeragoError] | None:
    """Find the kind of error that has this code or this name."""
    return KINDS.get(word) or _NAMED.get(word)
