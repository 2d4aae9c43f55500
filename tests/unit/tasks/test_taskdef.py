from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, RootModel

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    task,
)
from perago.tasks.definition import TaskDefinition, definition_of
from perago.tasks.taskdef import build_taskdef, contract_problems, taskdef_warnings
from support.command_line import environment

Content = TypeVar("Content")


class Plain(BaseModel):
    number: int = Field(1, description="A number.")


class Node(BaseModel):
    """Refers to itself."""

    name: str
    children: list[Node] = []


class Left(BaseModel):
    kind: Literal["left"]
    tree: Node


class Box(BaseModel, Generic[Content]):
    content: Content


class Right(BaseModel):
    kind: Literal["right"]
    box: Box[int]


class Choice(BaseModel):
    side: Annotated[Left | Right, Field(discriminator="kind")]


class Either(RootModel[Annotated[Left | Right, Field(discriminator="kind")]]):
    """Params that are one of two objects."""


class Renamed(BaseModel):
    inner: int = Field(alias="outerName", serialization_alias="shownName")


def plain_task(params: Plain) -> Plain:
    """Say it back."""
    return params


def file_task(workspace: Path, params: Plain) -> Plain:
    return params


def recursive_task(workspace: Path, params: Node) -> Node:
    return params


def choice_task(params: Choice) -> Choice:
    return params


def either_task(params: Either) -> Choice:
    return Choice(side=params.root)


def renamed_task(params: Renamed) -> Renamed:
    return params


def define(body: Any, **options: Any) -> TaskDefinition:
    given: dict[str, Any] = {"name": body.__name__, "owner_email": "data@example.com", **options}
    definition = definition_of(task(**given)(body))
    assert definition is not None
    assert contract_problems(definition) == []
    return definition


def taskdef_of(body: Any, **options: Any) -> dict[str, Any]:
    return build_taskdef(define(body, **options))


def references(value: Any) -> Iterator[str]:
    """Every ``$ref`` and every target of a discriminator in a schema."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            elif key == "mapping" and isinstance(item, dict):
                yield from item.values()
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def resolve(document: dict[str, Any], reference: str) -> Any:
    """A JSON pointer from the document's root, as a validator follows it."""
    assert reference.startswith("#/")
    found: Any = document
    for part in reference[2:].split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def test_a_taskdef_has_exactly_this_shape() -> None:
    taskdef = taskdef_of(plain_task)
    assert list(taskdef.items())[:13] == [
        ("name", "plain_task"),
        ("description", "Say it back."),
        ("ownerEmail", "data@example.com"),
        ("inputKeys", ["params"]),
        ("outputKeys", ["result"]),
        ("retryCount", 3),
        ("retryLogic", "FIXED"),
        ("retryDelaySeconds", 60),
        ("backoffScaleFactor", 1),
        ("timeoutSeconds", 0),
        ("timeoutPolicy", "TIME_OUT_WF"),
        ("responseTimeoutSeconds", 600),
        ("pollTimeoutSeconds", 0),
    ]
    assert list(taskdef)[13:] == ["inputSchema", "outputSchema", "enforceSchema"]
    assert taskdef["inputSchema"]["name"] == "plain_task.input"
    assert taskdef["outputSchema"]["name"] == "plain_task.output"


def test_controls_become_the_fields_of_the_same_meaning() -> None:
    controls = TaskControls(
        RetryPolicy(7, 5, "EXPONENTIAL_BACKOFF", 2),
        TimeoutPolicy(30, 90, 10, "RETRY"),
        ExecutionLimits(concurrent=4, rate=8, rate_window_seconds=16),
    )
    taskdef = taskdef_of(plain_task, controls=controls)
    assert {key: taskdef[key] for key in taskdef if key.startswith(("retry", "backoff"))} == {
        "retryCount": 7,
        "retryLogic": "EXPONENTIAL_BACKOFF",
        "retryDelaySeconds": 5,
        "backoffScaleFactor": 2,
    }
    assert taskdef["responseTimeoutSeconds"] == 30
    assert taskdef["timeoutSeconds"] == 90
    assert taskdef["pollTimeoutSeconds"] == 10
    assert taskdef["timeoutPolicy"] == "RETRY"
    assert taskdef["concurrentExecLimit"] == 4
    assert taskdef["rateLimitPerFrequency"] == 8
    assert taskdef["rateLimitFrequencyInSeconds"] == 16


def test_a_file_task_takes_and_gives_a_workspace() -> None:
    taskdef = taskdef_of(file_task, workspace=WorkspaceSpec(prefix="audio"))
    assert taskdef["inputKeys"] == ["workspace", "params"]
    assert taskdef["outputKeys"] == ["workspace", "result"]
    data = taskdef["inputSchema"]["data"]
    assert data["required"] == ["workspace", "params"]
    assert data["additionalProperties"] is False
    workspace = data["properties"]["workspace"]
    assert workspace["required"] == ["repository", "branch", "ref"]
    assert workspace["properties"]["ref"]["pattern"] == "^[0-9a-f]{64}$"


@pytest.mark.parametrize("body", [recursive_task, choice_task, either_task])
@pytest.mark.parametrize("side", ["inputSchema", "outputSchema"])
def test_every_reference_resolves_from_the_root_of_the_schema(body: Any, side: str) -> None:
    data = json.loads(json.dumps(taskdef_of(body)[side]["data"]))
    found = list(references(data))
    assert found
    for reference in found:
        assert resolve(data, reference)["type"] == "object"
    nested = json.dumps(data["properties"])
    assert "$defs" not in nested.replace("#/$defs/", "")


def test_a_recursive_model_refers_to_itself_in_defs() -> None:
    data = taskdef_of(recursive_task)["inputSchema"]["data"]
    assert resolve(data, data["properties"]["params"]["$ref"])["properties"]["children"] == {
        "default": [],
        "items": {"$ref": "#/$defs/Node"},
        "title": "Children",
        "type": "array",
    }


def test_a_discriminated_union_keeps_its_mapping() -> None:
    data = taskdef_of(choice_task)["inputSchema"]["data"]
    assert resolve(data, "#/$defs/Right")["properties"]["box"] == {"$ref": "#/$defs/Box_int_"}
    side = data["properties"]["params"]["properties"]["side"]
    assert side["discriminator"]["mapping"] == {"left": "#/$defs/Left", "right": "#/$defs/Right"}


def test_the_schemas_show_the_names_that_travel() -> None:
    taskdef = taskdef_of(renamed_task)
    assert list(taskdef["inputSchema"]["data"]["properties"]["params"]["properties"]) == [
        "outerName"
    ]
    assert list(taskdef["outputSchema"]["data"]["properties"]["result"]["properties"]) == [
        "shownName"
    ]


SET_DEFAULT = """
import json
from pydantic import BaseModel
from perago import task
from perago.tasks.definition import definition_of
from perago.tasks.taskdef import build_taskdef

class Inner(BaseModel):
    tags: frozenset[str] = frozenset({"alpha", "beta", "gamma", "delta", "epsilon"})

class P(BaseModel):
    tags: set[str] = {"alpha", "beta", "gamma", "delta", "epsilon"}
    by_name: dict[str, set[str]] = {"a": {"alpha", "beta", "gamma", "delta", "epsilon"}}
    listed: list[tuple[int, set[str]]] = [(1, {"alpha", "beta", "gamma", "delta", "epsilon"})]
    inner: Inner = Inner()

@task(name="x", owner_email="data@example.com")
def x(params: P) -> P: ...

print(json.dumps(build_taskdef(definition_of(x))))
"""


def test_a_taskdef_is_the_same_text_in_every_process(tmp_path: Path) -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", SET_DEFAULT],
            env=environment({"PYTHONHASHSEED": seed}),
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


def test_a_response_timeout_below_the_publish_budget_is_a_warning() -> None:
    budget = PublishBudget(2, 1, 5, 10, 20, 30)
    short = TaskControls(timeout=TimeoutPolicy(response_seconds=34), publish_budget=budget)
    (warning,) = taskdef_warnings(define(plain_task, controls=short))
    assert "responseTimeoutSeconds is 34, shorter than the publish budget of 35 s" in warning
    enough = TaskControls(timeout=TimeoutPolicy(response_seconds=35), publish_budget=budget)
    assert taskdef_warnings(define(plain_task, controls=enough)) == []
    assert taskdef_warnings(define(plain_task)) == []


@pytest.mark.parametrize("deadline", ["body_seconds", "attempt_seconds"])
def test_a_deadline_that_conductor_never_lets_pass_is_a_warning(deadline: str) -> None:
    def warnings(seconds: float, total: int) -> list[str]:
        limits: dict[str, Any] = {deadline: seconds}
        timeout = TimeoutPolicy(response_seconds=10, total_seconds=total, **limits)
        return taskdef_warnings(define(plain_task, controls=TaskControls(timeout=timeout)))

    (warning,) = warnings(60.5, 60)
    assert f"{deadline} is 60.5, longer than timeoutSeconds, 60" in warning
    assert warnings(60, 60) == warnings(60, 0) == []
