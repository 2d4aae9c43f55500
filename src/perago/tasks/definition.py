"""The ``@task`` decorator: checks a function, attaches a definition, returns it unchanged."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from perago.errors import DefinitionError
from perago.tasks.controls import TaskControls
from perago.tasks.spec import WorkspaceSpec

_ATTRIBUTE = "__perago_task__"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")

Body = TypeVar("Body", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct, and where."""

    file: str
    line: int
    task: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: task {self.task!r}: {self.text}"


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task that can run."""

    name: str
    owner_email: str
    description: str
    workspace: WorkspaceSpec | None
    controls: TaskControls
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    function: Callable[..., Any]


_collected: ContextVar[list[Problem] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting_problems() -> Iterator[list[Problem]]:
    """Within the block, decorators note their problems instead of raising them."""
    problems: list[Problem] = []
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

    ``(workspace: Path, params: Model) -> Result`` works on files; ``(params: Model) -> Result``
    needs no workspace. The function itself stays as it is and can be called and tested as such.
    """

    def decorate(function: Body) -> Body:
        given = TaskControls() if controls is None else controls
        signature = _read_signature(function)
        texts = [
            *_naming_problems(name, owner_email),
            *signature.problems,
            *_workspace_problems(signature, workspace),
            *_controls_problems(given),
        ]
        if texts or signature.params is None or signature.result is None:
            _report(function, str(name), texts)
            return function
        spec = (workspace or WorkspaceSpec()) if signature.takes_workspace else None
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
        )
        setattr(function, _ATTRIBUTE, definition)
        return function

    return decorate


def definition_of(value: object) -> TaskDefinition | None:
    """The definition attached to a task function."""
    found = getattr(value, _ATTRIBUTE, None)
    return found if isinstance(found, TaskDefinition) else None


@dataclass(frozen=True, slots=True)
class _Signature:
    takes_workspace: bool
    params: type[BaseModel] | None
    result: type[BaseModel] | None
    problems: tuple[str, ...]


def _read_signature(function: Callable[..., Any]) -> _Signature:
    wanted = "write (workspace: Path, params: Model) -> Result or (params: Model) -> Result"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return _Signature(False, None, None, (f"a task must be a plain function: {wanted}",))
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError) as error:
        return _Signature(False, None, None, (f"cannot read the annotations: {error}",))
    parameters = list(inspect.signature(function).parameters.values())
    plain = all(item.kind is item.POSITIONAL_OR_KEYWORD for item in parameters)
    takes_workspace = len(parameters) == 2
    problems: list[str] = []
    if not plain or len(parameters) not in {1, 2}:
        return _Signature(False, None, None, (f"the parameters do not fit: {wanted}",))
    if takes_workspace and hints.get(parameters[0].name) is not Path:
        problems.append(f"the first parameter must be annotated Path: {wanted}")
    params, result = hints.get(parameters[-1].name), hints.get("return")
    if not _is_model(params):
        problems.append(
            f"parameter {parameters[-1].name!r} must be annotated with a pydantic model"
        )
    if not _is_model(result):
        problems.append("the return type must be a pydantic model")
    return _Signature(
        takes_workspace,
        params if _is_model(params) else None,
        result if _is_model(result) else None,
        tuple(problems),
    )


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel


def _naming_problems(name: object, owner_email: object) -> Iterator[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"name {name!r}: write letters, digits, '_', '-' or '.', beginning with a letter"
    if not isinstance(owner_email, str) or not _EMAIL.fullmatch(owner_email):
        yield f"owner_email {owner_email!r}: write an address like 'data@example.com'"


def _controls_problems(controls: object) -> Iterator[str]:
    if isinstance(controls, TaskControls):
        yield from controls.problems()
    else:
        yield f"controls must be TaskControls(…), not {controls!r}"


def _workspace_problems(signature: _Signature, workspace: object) -> Iterator[str]:
    if workspace is None:
        return
    if not isinstance(workspace, WorkspaceSpec):
        yield f"workspace must be WorkspaceSpec(…), not {workspace!r}"
        return
    if not signature.takes_workspace and not signature.problems:
        yield (
            "a workspace is given but the function does not take one: "
            "add (workspace: Path, …) or drop workspace="
        )
    yield from workspace.problems()


def _report(function: Callable[..., Any], name: str, texts: list[str]) -> None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = code.co_filename if code else "<unknown>"
    line = code.co_firstlineno if code else 0
    problems = [Problem(file, line, name, text) for text in texts]
    collected = _collected.get()
    if collected is None:
        raise DefinitionError("\n".join(map(str, problems)))
    collected.extend(problems)
