from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, require_file, task
from perago.errors import DefinitionError
from perago.tasks.definition import collecting_problems, definition_of
from support.definitions import Params, Result, define, file_body, refused

HERE = Path(__file__)


def plain_body(params: Params) -> Result:
    return Result(count=len(params.stem))


def test_the_function_comes_back_unchanged_and_can_be_called(tmp_path: Path) -> None:
    decorated = task(name="count", owner_email="data@example.com")(file_body)
    assert decorated is file_body
    assert decorated(tmp_path, Params(stem="x")) == Result(count=0)


def test_a_path_makes_a_file_task_with_the_whole_repository_by_default() -> None:
    definition = define(file_body)
    assert definition.workspace == WorkspaceSpec(prefix="/")
    assert (definition.params_model, definition.result_model) == (Params, Result)
    assert definition.description == "Count files."


def test_params_alone_make_a_task_without_a_workspace() -> None:
    definition = define(plain_body)
    assert definition.workspace is None
    assert definition.description == "a_task"


def test_annotations_written_as_strings_are_understood() -> None:
    # Everything in this file is one: `from __future__ import annotations`.
    assert isinstance(file_body.__annotations__["params"], str)
    assert define(file_body).params_model is Params


def three(workspace: Path, params: Params, more: int) -> Result:
    raise NotImplementedError


def four(workspace: Path, params: Params, inputs: dict[str, Path], more: int) -> Result:
    raise NotImplementedError


def nothing() -> Result:
    raise NotImplementedError


def any_number(*params: Params) -> Result:
    raise NotImplementedError


def keyword(*, params: Params) -> Result:
    raise NotImplementedError


def no_path(workspace: str, params: Params) -> Result:
    raise NotImplementedError


def swapped(params: Params, workspace: Path) -> Result:
    raise NotImplementedError


def bare(workspace, params):  # type: ignore[no-untyped-def]
    ...


def base_models(params: BaseModel) -> BaseModel:
    raise NotImplementedError


def optional(params: Params | None) -> Result:
    raise NotImplementedError


def unknown_name(params: Elsewhere) -> Result:  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


async def awaited(params: Params) -> Result:
    raise NotImplementedError


def generator(params: Params) -> Result:  # type: ignore[misc]
    yield


class Callable:
    def __call__(self, params: Params) -> Result:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (three, "parameter 'more' must be annotated Mapping[str, Path]"),
        (four, "the parameters do not fit"),
        (nothing, "the parameters do not fit"),
        (any_number, "the parameters do not fit"),
        (keyword, "the parameters do not fit"),
        (no_path, "the first parameter must be annotated Path"),
        (swapped, "the first parameter must be annotated Path"),
        (bare, "parameter 'params' must be annotated with a pydantic model"),
        (bare, "the return type must be a pydantic model"),
        (base_models, "parameter 'params' must be annotated with a pydantic model"),
        (optional, "parameter 'params' must be annotated with a pydantic model"),
        (unknown_name, "cannot read the annotations: name 'Elsewhere' is not defined"),
        (awaited, "a task must be a plain function"),
        (generator, "a task must be a plain function"),
        (Callable, "a task must be a plain function"),
        (Callable(), "a task must be a plain function"),
        (functools.partial(plain_body), "a task must be a plain function"),
        (staticmethod(plain_body), "a task must be a plain function"),
        (lambda params: params, "must be annotated with a pydantic model"),
    ],
)
def test_a_function_that_cannot_run_is_refused_with_what_to_write(body: Any, text: str) -> None:
    assert text in refused(body)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "with space"}, "name 'with space': write letters, digits"),
        ({"name": "1st"}, "beginning with a letter"),
        ({"name": None}, "name None"),
        ({"name": "newline\n"}, "name 'newline\\n'"),
        ({"owner_email": "nobody"}, "owner_email 'nobody': write an address"),
        ({"controls": 3}, "controls must be TaskControls(…), not 3"),
        ({"workspace": "raw"}, "workspace must be WorkspaceSpec(…), not 'raw'"),
        ({"description": 5}, "description must be a string, not 5"),
    ],
)
def test_a_wrong_argument_of_the_decorator_is_named(options: dict[str, Any], text: str) -> None:
    assert text in refused(file_body, **options)


def test_a_workspace_for_a_function_that_takes_none_is_refused() -> None:
    assert "the function does not take one" in refused(plain_body, workspace=WorkspaceSpec())


def test_everything_wrong_with_a_task_is_said_at_once_with_file_and_line() -> None:
    text = refused(
        no_path,
        name="a b",
        owner_email="x",
        workspace=WorkspaceSpec("../up", [require_file("")]),
        controls=TaskControls(RetryPolicy(count=-1)),
    )
    line = no_path.__code__.co_firstlineno
    lines = text.splitlines()
    assert len(lines) == 6
    assert all(f"{HERE.name}:{line}: task 'a b': " in item for item in lines)


def test_the_line_of_a_class_is_where_it_is_decorated() -> None:
    with pytest.raises(DefinitionError, match=rf"{HERE.name}:\d+: "):
        task(name="a_task", owner_email="data@example.com")(Callable)


def test_within_collecting_problems_no_task_raises_and_all_are_noted() -> None:
    with collecting_problems() as problems:
        for body in (three, nothing, file_body):
            task(name=body.__name__, owner_email="data@example.com")(body)
    assert [problem.task for problem in problems] == ["three", "nothing"]
    assert definition_of(three) is None
    assert "three" in refused(three, name="three"), "outside the block it raises again"


def test_a_decorated_function_keeps_its_own_signature() -> None:
    @functools.wraps(file_body)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return file_body(*args, **kwargs)

    assert define(logged).params_model is Params


def numbers() -> Iterator[int]:
    yield 1


def test_only_a_task_has_a_definition() -> None:
    assert definition_of(numbers) is None
    assert definition_of(object()) is None
