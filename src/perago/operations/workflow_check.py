"""Find mistakes in the input mapping of a workflow before it runs.

The steps are walked in the order in which Conductor runs them. For each branch that they publish
to, the walk knows which step publishes last, and so which workspace the next writer has to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.operations.model_check import nearest, output_problem, params_problems
from perago.operations.workflow_file import (
    DECIDED_LATER,
    STEP_TYPES,
    Json,
    WorkflowFile,
    all_steps,
    branches_of,
    expressions,
    shape_problems,
    stray_items,
    whole_expression,
)
from perago.operations.workspace_origins import BranchKey, Origin, Origins
from perago.tasks.definition import TaskDefinition
from perago.text import shorten_value

_INPUT_KEYS = {"workspace", "params", "inputs"}
_EXAMPLES = {
    "workspace": '"${workflow.input.workspace}"',
    "params": "{}",
    "inputs": '{"NAME": "${workflow.input.NAME}"}',
}


@dataclass(frozen=True, slots=True)
class WorkflowProblem:
    """One mistake, or with ``warning`` something that may be one."""

    severity: Literal["error", "warning"]
    step: str
    text: str

    def __str__(self) -> str:
        where = f"step {self.step!r}: " if self.step else ""
        return f"{self.severity}: {where}{self.text}"


@dataclass(slots=True)
class _State:
    """What is known at one point of the walk."""

    # The steps that may have run.
    done: set[str] = field(default_factory=set)
    # The steps that may have published last to a branch.
    latest: dict[BranchKey, frozenset[str]] = field(default_factory=dict)
    # The steps of this path that publish, by branch.
    wrote: dict[BranchKey, list[str]] = field(default_factory=dict)
    # Whether the workflow has ended on this path.
    ended: bool = False

    def fork(self) -> _State:
        return _State(set(self.done), dict(self.latest))


def check_workflow(
    workflow: WorkflowFile, definitions: Sequence[TaskDefinition] | None
) -> list[WorkflowProblem]:
    """Return every finding; without definitions, only what the file alone shows."""
    tasks = None if definitions is None else {item.name: item for item in definitions}
    return _Check(workflow, tasks).run()


class _Check:
    def __init__(self, workflow: WorkflowFile, tasks: dict[str, TaskDefinition] | None) -> None:
        self._workflow = workflow
        self._tasks = tasks
        self._found: dict[WorkflowProblem, None] = {}
        self._round = ""
        self._references: list[str] = []
        self._origins = Origins(self._references, self._error, self._warn)
        self._step_tasks: dict[str, TaskDefinition] = {}
        # Branches about which an error was said: nothing more follows from what comes after.
        self._in_conflict: set[BranchKey] = set()

    def run(self) -> list[WorkflowProblem]:
        self._collect()
        if not self._found:
            state = _State()
            self._walk(self._workflow.tasks, state)
            for expression in expressions(self._workflow.definition.get("outputParameters")):
                self._check_reference("", expression, state)
        return list(self._found)

    def _error(self, step: str, text: str) -> None:
        self._add("error", step, text)

    def _warn(self, step: str, text: str) -> None:
        self._add("warning", step, text)

    def _add(self, severity: Literal["error", "warning"], step: str, text: str) -> None:
        # What was found in a loop's first round is not said again about its second.
        if WorkflowProblem(severity, step, text) not in self._found:
            self._found.setdefault(WorkflowProblem(severity, step, self._round + text))

    # The shape of the steps.

    def _collect(self) -> None:
        for item in stray_items(self._workflow.tasks):
            self._error("", f'a step is an object, {{"name": "…", …}}, not {shorten_value(item)}')
        for step in all_steps(self._workflow.tasks):
            name, reference = step.get("name"), step.get("taskReferenceName")
            shown = reference if isinstance(reference, str) else str(name)
            for key in ("name", "taskReferenceName", "type"):
                if not isinstance(step.get(key), str) or not step[key]:
                    self._error(shown, f'the step needs "{key}": "…"')
            if isinstance(kind := step.get("type"), str) and kind not in STEP_TYPES:
                # Conductor queues it under that name, where no worker of Perago looks.
                says = self._error if kind.upper() in STEP_TYPES else self._warn
                known = nearest(kind.upper(), STEP_TYPES)
                says(shown, f"the type {kind!r} is not one of Conductor's own{known}")
            for problem in shape_problems(step):
                self._error(shown, problem)
            if isinstance(reference, str):
                if reference in self._references:
                    self._error(reference, "the reference name is used twice; give each step one")
                self._references.append(reference)
            if self._tasks and isinstance(reference, str) and name in self._tasks:
                self._step_tasks[reference] = self._tasks[name]
        for step in all_steps(self._workflow.tasks):
            for waited in names if isinstance(names := step.get("joinOn"), list) else []:
                if waited not in self._references:
                    known = nearest(str(waited), self._references)
                    self._error(
                        str(step.get("taskReferenceName")),
                        f"joinOn names {waited!r}, which is no reference name{known}",
                    )

    # The walk.

    def _walk(self, tasks: Iterable[Any], state: _State) -> None:
        for step in tasks:
            if not isinstance(step, dict):
                self._error("", f"a step is a JSON object, not {type(step).__name__}")
                continue
            reference = step["taskReferenceName"]
            for expression in expressions(step.get("inputParameters")):
                self._check_reference(reference, expression, state)
            match step["type"]:
                case "SIMPLE":
                    self._check_step(step, reference, state)
                case "FORK_JOIN":
                    self._walk_fork(step, reference, state)
                case "SWITCH" | "DECISION":
                    self._walk_switch(step, state)
                case "DO_WHILE":
                    self._walk_loop(step, reference, state)
                case "TERMINATE":
                    state.ended = True
                case kind if kind in DECIDED_LATER:
                    self._warn(reference, f"what a {kind} runs is not looked into")
            state.done.add(reference)

    def _walk_fork(self, step: Json, reference: str, state: _State) -> None:
        paths = []
        for tasks in branches_of(step):
            paths.append(state.fork())
            self._walk(tasks, paths[-1])
        for key in sorted({key for path in paths for key in path.wrote}):
            writing = [path for path in paths if key in path.wrote]
            if len(writing) > 1:
                writers = " and ".join(repr(path.wrote[key][0]) for path in writing)
                says = self._error if self._are_writers(writing, key) else self._warn
                says(
                    reference,
                    f"steps {writers} publish to the same branch at the same time, so that all "
                    "but one fail with PRG-502: run them one after the other, or give each a "
                    "branch of its own",
                )
                self._in_conflict.add(key)
        self._join(paths, state, only_writers=True)

    def _are_writers(self, paths: Sequence[_State], key: BranchKey) -> bool:
        return all(path.wrote[key][0] in self._step_tasks for path in paths)

    def _walk_switch(self, step: Json, state: _State) -> None:
        paths = []
        for tasks in branches_of(step):
            paths.append(state.fork())
            self._walk(tasks, paths[-1])
        going_on = [path for path in paths if not path.ended]
        state.ended = bool(paths) and not going_on
        self._join(going_on, state, only_writers=False)

    def _join(self, paths: Sequence[_State], state: _State, *, only_writers: bool) -> None:
        """Go on after paths: after a fork all have run, after a switch one of them."""
        before = dict(state.latest)
        for key in {key for path in paths for key in path.wrote}:
            counted = [path for path in paths if key in path.wrote or not only_writers]
            start = before.get(key, frozenset({""}))
            last = frozenset[str]().union(*(path.latest.get(key, start) for path in counted))
            state.latest[key] = last
            state.wrote.setdefault(key, []).extend(
                writer for path in counted for writer in path.wrote.get(key, ())
            )
        for path in paths:
            state.done |= path.done

    def _walk_loop(self, step: Json, reference: str, state: _State) -> None:
        for tasks in branches_of(step):
            self._walk(tasks, state)
            outside, self._round = self._round, f"in the second round of loop {reference!r}: "
            self._walk(tasks, state)
            self._round = outside

    # One step.

    def _check_step(self, step: Json, reference: str, state: _State) -> None:
        definition = self._step_tasks.get(reference)
        inputs = step.get("inputParameters", {})
        if not isinstance(inputs, dict):
            self._error(reference, "inputParameters must be an object")
            return
        is_ours = definition is not None or (bool(inputs) and set(inputs) <= _INPUT_KEYS)
        if definition is None and self._tasks is not None:
            says = self._error if is_ours else self._warn
            near = nearest(step["name"], self._tasks)
            says(reference, f"no given module has a task {step['name']!r}{near}")
        if is_ours:
            self._check_keys(reference, inputs, definition)
            self._check_params(reference, inputs.get("params"), definition)
        if "inputs" in inputs and is_ours:
            self._check_named(reference, inputs["inputs"], definition)
        if "workspace" in inputs:
            self._check_workspace(reference, inputs["workspace"], definition, state)

    def _check_keys(self, reference: str, inputs: Json, definition: TaskDefinition | None) -> None:
        wanted: list[str]
        if definition is None:
            wanted = [key for key in ("workspace", "inputs") if key in inputs]
        else:
            spec = definition.workspace
            wanted = [] if spec is None else ["workspace", *(["inputs"] if spec.inputs else [])]
        wanted.append("params")
        for key in wanted:
            if key not in inputs:
                self._error(reference, f'inputParameters needs "{key}", such as {_EXAMPLES[key]}')
        for key in inputs:
            if key not in wanted:
                more = " (the task takes none)" if key in _INPUT_KEYS else ""
                self._error(
                    reference,
                    f'inputParameters has "{key}", which no task takes{more}: this step '
                    f"has exactly {' and '.join(wanted)}",
                )

    def _check_named(self, reference: str, given: Any, definition: TaskDefinition | None) -> None:
        """Check the inputs beside the workspace: each is a workspace, and may be an older one."""
        if whole_expression(given) is not None:
            return
        if not isinstance(given, dict):
            self._error(reference, f"inputs must be an object, not {type(given).__name__}")
            return
        spec = definition.workspace if definition is not None else None
        names = list(given if spec is None else spec.inputs)
        for name in names:
            if name not in given:
                self._error(reference, f"inputs: missing {name!r}, a workspace")
        for name, value in given.items():
            if name not in names:
                self._error(reference, f"inputs: the task has no {name!r}{nearest(name, names)}")
            else:
                self._origins.trace(reference, value, f"inputs.{name}")

    def _check_params(self, reference: str, params: Any, definition: TaskDefinition | None) -> None:
        if params is None or whole_expression(params) is not None:
            return
        if not isinstance(params, dict):
            self._error(reference, f"params must be an object, not {type(params).__name__}")
        elif definition is not None:
            for text in params_problems(params, definition.params_model):
                self._error(reference, f"params: {text}")

    def _check_workspace(
        self, reference: str, value: Any, definition: TaskDefinition | None, state: _State
    ) -> None:
        origin = self._origins.trace(reference, value)
        if origin is None:
            return
        spec = definition.workspace if definition is not None else None
        if spec is not None and spec.read_only:
            self._origins.outputs[reference] = origin
            return
        last = state.latest.get(origin.key, frozenset({""}))
        if origin.key not in self._in_conflict:
            self._check_currency(reference, origin, last, is_writer=spec is not None)
        self._origins.outputs[reference] = Origin(origin.key, reference)
        state.latest[origin.key] = frozenset({reference})
        state.wrote.setdefault(origin.key, []).append(reference)

    def _check_currency(
        self, reference: str, origin: Origin, last: frozenset[str], *, is_writer: bool
    ) -> None:
        """A writer must take the commit that its branch is at."""
        taken = f"that step {origin.writer!r} left" if origin.writer else "of the workflow's input"
        writers = sorted(last - {""})
        if origin.writer not in last:
            writer = writers[-1] if writers else ""
            certain = is_writer and writer in self._step_tasks
            text = (
                f"takes the workspace {taken}, but step {writer!r} publishes to the same branch "
                f'before it, so that it fails with PRG-502: write "workspace": '
                f'"${{{writer}.output.workspace}}"'
            )
            if certain:
                self._error(reference, text)
            else:
                self._warn(reference, f"{text} (unless one of them is read-only)")
        elif len(last) > 1:
            others = ", ".join(repr(item) for item in sorted(last - {origin.writer, ""}))
            more = f"step {others} published last" if others else "no step published before it"
            self._warn(
                reference, f"takes the workspace {taken}; where {more}, it fails with PRG-502"
            )

    # What expressions refer to.

    def _check_reference(self, step: str, expression: str, state: _State) -> None:
        scope, _, rest = expression.partition(".")
        if scope == "workflow" or scope.isupper():
            return
        if scope not in self._references:
            near = nearest(scope, [item for item in self._references if item != step])
            self._error(step, f"${{{expression}}}: the workflow has no step {scope!r}{near}")
        elif scope not in state.done:
            self._error(step, f"${{{expression}}}: step {scope!r} does not run before this one")
        elif scope in self._step_tasks:
            problem = output_problem(rest, self._step_tasks[scope])
            if problem is not None:
                self._error(step, f"${{{expression}}}: {problem}")
