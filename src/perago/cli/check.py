"""``perago check``: everything wrong with the tasks of modules, and drift against Conductor."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.extract import Targets
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.operations.registration import Comparison
    from perago.settings import Settings
    from perago.tasks.definition import DefinitionProblem, TaskDefinition
    from perago.tasks.drift import Difference


@dataclass(slots=True)
class _Report:
    tasks: list[str]
    problems: list[DefinitionProblem]
    warnings: list[str] = field(default_factory=list)
    compared: list[Comparison] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        if self.problems:
            return 2
        return 1 if any(item.is_error for item in self.compared) else 0


def check(
    targets: Targets,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also compare with what Conductor has registered.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report every problem of every task at once; with --connect, drift against Conductor too."""
    from perago.settings import load_settings
    from perago.tasks.taskdef import taskdef_warnings
    from perago.wiring.tasks import inspect_targets

    settings = load_settings()
    found = inspect_targets(settings, targets)
    report = _Report([task.name for task in found.tasks], found.problems)
    for definition in found.tasks:
        report.warnings += taskdef_warnings(definition)
        if definition.takes_whole_repository:
            report.warnings.append(_whole_repository(definition))
    if connect and not found.problems:
        report.compared = _compare(settings, found.tasks)
    if as_json:
        output.emit_json(_as_json(report))
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _whole_repository(definition: TaskDefinition) -> str:
    return (
        f"task {definition.name!r} takes the whole repository: give "
        "workspace=WorkspaceSpec(prefix=…), or WorkspaceSpec() if it is meant"
    )


def _compare(settings: Settings, definitions: list[TaskDefinition]) -> list[Comparison]:
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.operations.registration import compare_with_conductor
    from perago.wiring.connections import conductor_connection

    with closing(ConductorTaskDefs(conductor_connection(settings))) as conductor:
        return [compare_with_conductor(conductor, definition) for definition in definitions]


def _show(report: _Report) -> None:
    for problem in report.problems:
        output.say(f"error: {problem}")
    for warning in report.warnings:
        output.say(f"warning: {warning}")
    if report.problems:
        count = len(report.problems)
        output.say(f"{count} {'problem' if count == 1 else 'problems'} to correct")
        return
    compared = {item.task: item for item in report.compared}
    for name in report.tasks:
        _show_task(name, compared.get(name))


def _show_task(name: str, comparison: Comparison | None) -> None:
    from perago.operations.registration import describe

    if comparison is None:
        output.say(f"{name}: ok")
    elif comparison.differences is None:
        output.say(f"error: {name}: not registered in Conductor; run perago register")
    elif not comparison.differences:
        output.say(f"{name}: ok, as registered in Conductor")
    else:
        output.say(f"{name}: registered in Conductor with differences (registered -> defined)")
        for difference in comparison.differences:
            word = "error" if difference.kind == "contract" else "warning"
            output.say(f"  {word}: {describe(difference)}")


def _as_json(report: _Report) -> dict[str, Any]:
    return {
        "tasks": report.tasks,
        "problems": [asdict(problem) for problem in report.problems],
        "warnings": report.warnings,
        "conductor": [
            {
                "task": item.task,
                "registered": item.differences is not None,
                "differences": [difference_document(it) for it in item.differences or ()],
            }
            for item in report.compared
        ],
        "exit_code": report.exit_code,
    }


def difference_document(difference: Difference) -> dict[str, Any]:
    """Describe a difference for programs.

    A value that is not there is left out, because null may be a value.
    """
    from perago.tasks.drift import ABSENT

    values = {"registered": difference.registered, "defined": difference.defined}
    present = {key: value for key, value in values.items() if value is not ABSENT}
    return {"path": difference.path, "kind": difference.kind.value, **present}
