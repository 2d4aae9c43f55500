"""Define tasks with ``@task``, which checks a function and attaches its definition."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from perago.errors import DefinitionError
from perago.tasks.controls import TaskControls
from perago.tasks.spark import SparkWorkspace
from perago.tasks.spec import WorkspaceSpec

_ATTRIBUTE = "__perago_task__"
_PROBLEMS = "__perago_problems__"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")

Body = TypeVar("Body", bound=Callable[..., Any])
# What a task works on: files in a folder, data through Spark, or its params only.
TaskKind = Literal["file", "spark", "plain"]
_KINDS: dict[object, TaskKind] = {Path: "file", SparkWorkspace: "spark"}
# What the third parameter of a file task with inputs may be annotated with.
_INPUTS: tuple[object, ...] = (Mapping[str, Path], dict[str, Path], typing.Mapping[str, Path])


# What a task works on that gives no WorkspaceSpec.
WHOLE_REPOSITORY = WorkspaceSpec()


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    """One problem and its place; without a task, it concerns the whole module."""

    file: str
    line: int
    task: str
    text: str

    def __str__(self) -> str:
        where = f"{_shown(self.file)}:{self.line}: " if self.file else ""
        whose = f"task {self.task!r}: " if self.task else ""
        return where + whose + self.text


def _shown(file: str) -> str:
    """Shorten a path below the current folder, like compilers do."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A valid task: its function, models, specs and controls."""

    name: str
    owner_email: str
    description: str
    workspace: WorkspaceSpec | None
    controls: TaskControls
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    function: Callable[..., Any]
    kind: TaskKind

    @property
    def takes_whole_repository(self) -> bool:
        """Whether it works on everything because its author said nothing about the workspace."""
        return self.workspace is WHOLE_REPOSITORY


_collected: ContextVar[list[DefinitionProblem] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting_problems() -> Iterator[list[DefinitionProblem]]:
    """Collect the problems of decorators within the block instead of raising them."""
    problems: list[DefinitionProblem] = []
    token = _collected.set(problems)
    try:
        yield problems
    finally:
        _collected.reset(token)


def task(
    *,
    name: str,
    owner_email: str,
    workspace: WorkspaceSpec | None = None,
    controls: TaskControls | None = None,
    description: str | None = None,
) -> Callable[[Body], Body]:
    """Make a typed function a task.

    ``(workspace: Path, params: Model) -> Result`` works on files;
    ``(workspace: SparkWorkspace, params: Model) -> Result`` works on data through Spark;
    ``(params: Model) -> Result`` needs no workspace. A file task whose spec has inputs takes their
    folders by name: ``(workspace: Path, params: Model, inputs: Mapping[str, Path]) -> Result``.
    The function is returned unchanged, so it can be called and tested directly. Raises
    ``DefinitionError`` with every problem.
    """

    def decorate(function: Body) -> Body:
        given = TaskControls() if controls is None else controls
        signature = _read_signature(function)
        texts = [
            *_naming_problems(name, owner_email),
            *signature.problems,
            *_workspace_problems(signature, workspace),
            *_controls_problems(given),
            *_description_problems(description),
        ]
        if texts or signature.params is None or signature.result is None:
            _report(function, str(name), texts)
            return function
        spec = None if signature.kind == "plain" else workspace or WHOLE_REPOSITORY
        text = description or inspect.getdoc(function) or name
        definition = TaskDefinition(
            name=name,
            owner_email=owner_email,
            description=text,
            workspace=spec,
            controls=given,
            params_model=signature.params,
            result_model=signature.result,
            function=function,
            kind=signature.kind,
        )
        setattr(function, _ATTRIBUTE, definition)
        return function

    return decorate


def definition_of(value: object) -> TaskDefinition | None:
    """Return the definition attached to a task function; None for other values."""
    found = getattr(value, _ATTRIBUTE, None)
    return found if isinstance(found, TaskDefinition) else None


def problems_of(value: object) -> tuple[DefinitionProblem, ...]:
    """Return the problems for which a decorated function did not become a task."""
    found = getattr(value, _PROBLEMS, ())
    return found if isinstance(found, tuple) else ()


@dataclass(frozen=True, slots=True)
class _Signature:
    kind: TaskKind
    params: type[BaseModel] | None
    result: type[BaseModel] | None
    problems: tuple[str, ...]
    takes_inputs: bool = False


def _read_signature(function: Callable[..., Any]) -> _Signature:
    wanted = (
        "write (workspace: Path, params: Model) -> Result, with SparkWorkspace in place of Path "
        "for a Spark task, or (params: Model) -> Result"
    )
    if not inspect.isfunction(function) or _returns_before_its_body_ends(function):
        return _Signature("plain", None, None, (f"a task must be a plain function: {wanted}",))
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError) as error:
        return _Signature("plain", None, None, (f"cannot read the annotations: {error}",))
    parameters = list(inspect.signature(function).parameters.values())
    plain = all(item.kind is item.POSITIONAL_OR_KEYWORD for item in parameters)
    problems: list[str] = []
    if not plain or len(parameters) not in {1, 2, 3}:
        return _Signature("plain", None, None, (f"the parameters do not fit: {wanted}",))
    kind: TaskKind = "plain"
    takes_inputs = len(parameters) == 3
    if takes_inputs:
        inputs = parameters.pop()
        if hints.get(inputs.name) not in _INPUTS:
            problems.append(f"parameter {inputs.name!r} must be annotated Mapping[str, Path]")
    if len(parameters) == 2:
        workspace = hints.get(parameters[0].name)
        kind = _KINDS.get(workspace, "file")
        if workspace not in _KINDS:
            problems.append(
                f"the first parameter must be annotated Path or SparkWorkspace: {wanted}"
            )
    params, result = hints.get(parameters[-1].name), hints.get("return")
    if not _is_model(params):
        problems.append(
            f"parameter {parameters[-1].name!r} must be annotated with a pydantic model"
        )
    if not _is_model(result):
        problems.append("the return type must be a pydantic model")
    return _Signature(
        kind,
        params if _is_model(params) else None,
        result if _is_model(result) else None,
        tuple(problems),
        takes_inputs,
    )


def _returns_before_its_body_ends(function: Callable[..., Any]) -> bool:
    """Whether a call returns before the body has run: a coroutine or a generator."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel


def _naming_problems(name: object, owner_email: object) -> Iterator[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"name {name!r}: write letters, digits, '_', '-' or '.', beginning with a letter"
    if not isinstance(owner_email, str) or not _EMAIL.fullmatch(owner_email):
        yield f"owner_email {owner_email!r}: write an address like 'data@example.com'"


def _description_problems(description: object) -> Iterator[str]:
    if description is not None and not isinstance(description, str):
        yield f"description must be a string, not {description!r}"


def _controls_problems(controls: object) -> Iterator[str]:
    if isinstance(controls, TaskControls):
        yield from controls.problems()
    else:
        yield f"controls must be TaskControls(…), not {controls!r}"


def _workspace_problems(signature: _Signature, workspace: object) -> Iterator[str]:
    if workspace is None:
        if signature.takes_inputs and not signature.problems:
            yield "the function takes inputs and there are none: add WorkspaceSpec(inputs={…})"
        return
    if not isinstance(workspace, WorkspaceSpec):
        yield f"workspace must be WorkspaceSpec(…), not {workspace!r}"
        return
    if signature.kind == "plain" and not signature.problems:
        yield (
            "a workspace is given but the function does not take one: "
            "add (workspace: Path, …) or drop workspace="
        )
    yield from workspace.problems()
    if not signature.problems:
        yield from _inputs_problems(signature, workspace)
    if signature.kind == "file" and not signature.problems:
        yield from workspace.file_problems()


def _inputs_problems(signature: _Signature, workspace: WorkspaceSpec) -> Iterator[str]:
    takes, has = signature.takes_inputs, bool(workspace.inputs)
    if signature.kind == "spark" and takes:
        yield "a Spark task takes no folders of its inputs: read workspace.input(path, source=NAME)"
    if signature.kind == "file" and has and not takes:
        yield (
            "WorkspaceSpec.inputs are given but the function does not take them: "
            "write (workspace: Path, params: Model, inputs: Mapping[str, Path])"
        )
    if signature.kind == "file" and takes and not has:
        yield "the function takes inputs and there are none: add WorkspaceSpec(inputs={…})"


def problem_at(function: Callable[..., Any], name: str, text: str) -> DefinitionProblem:
    """Build a problem of a task, at the line where its decorators begin."""
    plain = inspect.unwrap(function)
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    if code is None:  # a class or a partial has no line: use that of the decorator's caller
        return DefinitionProblem(*_caller(), name, text)
    return DefinitionProblem(code.co_filename, code.co_firstlineno, name, text)


def _caller() -> tuple[str, int]:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _report(function: Callable[..., Any], name: str, texts: list[str]) -> None:
    problems = [problem_at(function, name, text) for text in texts]
    collected = _collected.get()
    if collected is None:
        raise DefinitionError("\n".join(map(str, problems)))
    collected.extend(problems)
    # A module is imported once; a second inspection must find the same problems.
    with suppress(AttributeError, TypeError):
        setattr(function, _PROBLEMS, tuple(problems))
