"""``perago run``: run one task here, on a folder or as a transaction without Conductor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from perago.cli import output
from perago.cli.completion import complete_target
from perago.cli.json_option import read_json_object

if TYPE_CHECKING:
    from perago.progress import Advance
    from perago.protocol.events import EventSink, PhaseEvent
    from perago.protocol.outcome import Outcome
    from perago.settings import Settings
    from perago.tasks.definition import TaskDefinition

# The phases in which objects move and no code of an author runs, which may print.
_TRANSFERS = frozenset({"download", "stage"})
# The events that a line is written about.
_SHOWN = frozenset({"guardrail_warned", "task_progress", "phase_ended", "phase_failed"})


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:task]", help="The task to run.", autocompletion=complete_target
        ),
    ],
    params: Annotated[
        str, typer.Option("--params", metavar="JSON|@FILE", help="The task's params.")
    ] = "{}",
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="A folder to run on, in place, with no server.",
        ),
    ] = None,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="R", help="A LakeFS repository.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="B", help="The branch to start from and move.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object with the output, or with the failure."),
    ] = False,
) -> None:
    """Run one task without Conductor and print its output as JSON.

    With --workspace the task works on a folder, with no server at all. With --repository and
    --branch it is a real transaction: it starts from the branch's HEAD and publishes only if the
    branch is still there at the end.
    """
    from perago.errors import InputError
    from perago.masking import hide_secret_variables
    from perago.operations.interrupts import Interrupts
    from perago.protocol.outcome import Completed
    from perago.settings import load_settings
    from perago.wiring.tasks import load_tasks

    given = read_json_object("--params", params)
    interrupts = Interrupts(output.note)
    with _stdout_is_for_the_result():
        try:
            with interrupts:
                settings = load_settings()
                # Before the author's modules are imported, which run in this process.
                hide_secret_variables()
                definition = _choose(load_tasks(settings, [target]), target)
                _check_options(definition, workspace, repository, branch)
                start = _prepare(definition, target, given, settings, workspace, repository, branch)
                with _Display() as display:
                    outcome = start(interrupts.watch(display.show), display.count)
        except KeyboardInterrupt:
            output.note("stopped: nothing was published")
            raise typer.Exit(128 + (interrupts.signal or 2)) from None
    if as_json:
        output.emit_json(_as_document(outcome))
    if isinstance(outcome, Completed):
        if not as_json:
            output.emit_value(outcome.output)
        return
    if outcome.code is None:
        output.note(outcome.trace)
    output.note(f"{outcome.code or 'the task failed:'} {outcome.reason}")
    if outcome.hint:
        # What an attempt takes from a workflow, a run takes from its options.
        is_input = outcome.code == InputError.code
        output.note(f"Try: {'Correct --params.' if is_input else outcome.hint}")
    if outcome.is_infrastructure:
        output.point_to_doctor()
    raise typer.Exit(outcome.exit_code)


def _as_document(outcome: Outcome) -> dict[str, Any]:
    from perago.masking import mask_secrets
    from perago.protocol.outcome import Completed

    if isinstance(outcome, Completed):
        return {"status": "COMPLETED", "output": outcome.output, "failure": None}
    failure = {
        "reason": mask_secrets(outcome.reason),
        "code": outcome.code,
        "hint": mask_secrets(outcome.hint) if outcome.hint else None,
    }
    return {"status": outcome.disposition.value, "output": None, "failure": failure}


def _prepare(
    definition: TaskDefinition,
    target: str,
    params: dict[str, Any],
    settings: Settings,
    workspace: Path | None,
    repository: str | None,
    branch: str | None,
) -> Callable[[EventSink, Advance], Outcome]:
    """The run that the options ask for, still to be started."""
    from perago.operations.local_run import Transaction, run_alone, run_in_folder

    if repository is not None and branch is not None:
        transaction = Transaction(definition, target, repository, branch, settings)
        return lambda events, count: transaction.run(params, events, output.note, count)
    if workspace is None:
        return lambda events, _count: run_alone(definition, params, settings, events)
    folder = workspace
    if definition.workspace is not None and definition.workspace.read_only:
        output.note("the task is read-only, but a local run does not protect the folder")
    return lambda events, _count: run_in_folder(definition, params, folder, settings, events)


def _choose(definitions: list[TaskDefinition], target: str) -> TaskDefinition:
    if len(definitions) > 1:
        names = ", ".join(f"{target}:{definition.name}" for definition in definitions)
        raise typer.BadParameter(f"{target} has several tasks; give one of {names}")
    return definitions[0]


def _check_options(
    definition: TaskDefinition, workspace: Path | None, repository: str | None, branch: str | None
) -> None:
    remote = repository is not None or branch is not None
    if definition.workspace is None:
        if workspace is not None or remote:
            raise typer.BadParameter(
                f"task {definition.name!r} takes no workspace: leave out "
                "--workspace, --repository and --branch"
            )
        return
    if workspace is not None and definition.kind == "spark":
        raise typer.BadParameter(
            f"task {definition.name!r} is a Spark task, which reads and writes LakeFS: "
            "give --repository R and --branch B"
        )
    if workspace is not None and definition.workspace.inputs:
        raise typer.BadParameter(
            f"task {definition.name!r} has inputs from LakeFS: give --repository R and --branch B"
        )
    if (workspace is not None) == remote:
        raise typer.BadParameter(
            f"task {definition.name!r} needs a workspace: give either --workspace DIR, "
            "or --repository R and --branch B"
        )
    if remote and (repository is None or branch is None):
        raise typer.BadParameter("give --repository and --branch together")


class _Display:
    """A bar while objects move, and a line for each phase that ended."""

    def __init__(self) -> None:
        self._bar = ExitStack()
        self._advance: Advance | None = None
        # The bytes of the transfers before.
        self._before = self._moved = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.close()

    def show(self, event: PhaseEvent) -> None:
        from perago.progress import transfer

        if event.action in _SHOWN:
            # No line is written into a bar.
            self._advance = None
            self._bar.close()
        if event.action == "phase_started" and event.phase in _TRANSFERS:
            self._before = self._moved
            self._advance = self._bar.enter_context(transfer(event.phase, None))
        _show_phase(event)

    def count(self, moved: int) -> None:
        """Take the number of bytes that the run has moved by now, from any thread."""
        self._moved = max(self._moved, moved)
        if (advance := self._advance) is not None:
            advance(self._moved - self._before)


def _show_phase(event: PhaseEvent) -> None:
    """One line for each phase that ended, for each warning, and for what the body tells."""
    from perago.protocol.events import describe_progress

    if event.action == "guardrail_warned":
        output.note(f"{event.phase}: warning: {event.details['message']}")
    if event.action == "task_progress":
        output.note(describe_progress(event))
    if event.action not in {"phase_ended", "phase_failed"}:
        return
    details = " ".join(f"{name}={value}" for name, value in event.details.items())
    output.note(f"{event.phase}: {event.seconds or 0:.2f} s {details}".rstrip())


@contextmanager
def _stdout_is_for_the_result() -> Iterator[None]:
    """Send to stderr whatever a module, a body or its child processes print."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
