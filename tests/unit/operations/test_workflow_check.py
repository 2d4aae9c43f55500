"""Wiring mistakes are found before a workflow runs, each with what to write instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model
from webshop import workflow as webshop_workflow

from perago import InputSpec, WorkspaceSpec, task
from perago.errors import DefinitionError
from perago.operations.model_check import params_problems
from perago.operations.workflow_check import check_workflow
from perago.operations.workflow_file import WorkflowFile, read_workflow
from perago.tasks.definition import TaskDefinition, definition_of
from perago.tasks.discover import load_tasks
from support import workflows
from support.workflows import fork, join, loop, simple_task, switch, terminate

Json = dict[str, Any]
INPUT = "${workflow.input.workspace}"


class Params(BaseModel):
    day: str = "today"
    count: int = Field(0, ge=0, alias="howMany")
    nested: dict[str, int] = {}


class Needs(BaseModel):
    rows: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Result(BaseModel):
    rows: int = 0


def defined(name: str, params: type[BaseModel] = Params, *, read_only: bool = False) -> Any:
    def body(workspace: Path, params: Any) -> Result:
        return Result()

    body.__annotations__ = {"workspace": Path, "params": params, "return": Result}
    spec = WorkspaceSpec(read_only=read_only)
    return definition_of(task(name=name, owner_email="a@example.com", workspace=spec)(body))


@task(name="plain", owner_email="a@example.com")
def plain(params: Params) -> Result:
    return Result()


TASKS: list[TaskDefinition] = [
    *(defined("write"), defined("needs", Needs), defined("open", Open)),
    *(defined("look", read_only=True), definition_of(plain)),  # type: ignore[list-item]
]


def step(reference: str, name: str = "write", workspace: Any = INPUT, **params: Any) -> Json:
    inputs = {"workspace": workspace, "params": params}
    if name == "plain":
        del inputs["workspace"]
    return simple_task(name, inputs, reference=reference)


def after(reference: str) -> str:
    return f"${{{reference}.output.workspace}}"


def found(*steps: Any, tasks: list[TaskDefinition] | None = TASKS, **more: Any) -> list[str]:
    definition = {"name": "wf", "tasks": list(steps), **more}
    return [str(item) for item in check_workflow(WorkflowFile("wf", 1, definition), tasks)]


@pytest.mark.parametrize(
    "steps",
    [
        [step("a"), step("b", workspace=after("a"))],
        [step("a", "look"), step("b")],
        [step("a", "look"), step("b", workspace=after("a")), step("c", workspace=after("b"))],
        # A reader may take an older commit.
        [step("a"), step("b", "look"), step("c", workspace=after("a"))],
        # Another branch, and so another line of commits.
        [step("a"), step("b", workspace="${workflow.input.other}")],
        [fork([step("a")], [step("b", "look")]), join("a", "b"), step("c", workspace=after("a"))],
        [
            fork([step("a")], [step("b", workspace="${workflow.input.other}")]),
            join("a", "b"),
            step("c", workspace=after("a")),
            step("d", workspace=after("b")),
        ],
        # A case that ends the workflow does not come back.
        [
            step("a"),
            switch({"bad": [step("b", workspace=after("a")), terminate()]}),
            step("c", workspace=after("a")),
        ],
        [step("a", "open", misspelt=1, anything="${workflow.input.x}")],
        [step("a", day="${workflow.input.day}", howMany="${workflow.input.n}")],
        [step("a", "plain", nested={"x": "${workflow.input.n}"})],
        [step("a"), step("b", "needs", after("a"), rows="${a.output.result.rows}")],
        [
            step("a"),
            step(
                "b",
                workspace={
                    "repository": "${a.output.workspace.repository}",
                    "branch": "${a.output.workspace.branch}",
                    "ref_type": "commit",
                    "ref": "${a.output.workspace.ref}",
                },
            ),
            step("c", workspace=after("b")),
        ],
    ],
)
def test_a_workflow_without_mistakes_has_no_findings(steps: list[Json]) -> None:
    assert found(*steps) == []


def test_a_writer_must_take_what_the_writer_before_it_left() -> None:
    assert found(step("a"), step("b")) == [
        "error: step 'b': takes the workspace of the workflow's input, but step 'a' publishes to "
        "the same branch before it, so that it fails with PRG-502: write "
        '"workspace": "${a.output.workspace}"'
    ]
    (text,) = found(step("a"), step("b", workspace=after("a")), step("c", workspace=after("a")))
    assert "takes the workspace that step 'a' left, but step 'b' publishes" in text


def test_a_workspace_put_together_by_hand_is_followed_too() -> None:
    def by_hand(source: str) -> Json:
        return {
            "repository": "${workflow.input.workspace.repository}",
            "branch": "${workflow.input.workspace.branch}",
            "ref_type": "commit",
            "ref": source,
        }

    assert found(step("a"), step("b", workspace=by_hand("${a.output.workspace.ref}"))) == []
    stale = found(step("a"), step("b", workspace=by_hand("${workflow.input.workspace.ref}")))
    assert "but step 'a' publishes to the same branch" in stale[0]


def test_parallel_writers_of_one_branch_are_an_error_and_nothing_follows_from_it() -> None:
    steps = [fork([step("a")], [step("b")]), join("a", "b"), step("c", workspace=after("a"))]
    assert found(*steps) == [
        "error: step 'fork': steps 'a' and 'b' publish to the same branch at the same time, so "
        "that all but one fail with PRG-502: run them one after the other, or give each a branch "
        "of its own"
    ]


def test_a_branch_of_a_fork_does_not_see_what_another_one_does() -> None:
    texts = found(fork([step("a")], [step("b", "look", after("a"))]), join("a", "b"))
    assert texts == [
        "error: step 'b': ${a.output.workspace}: step 'a' does not run before this one"
    ]


def test_a_writer_after_a_switch_may_be_stale_in_one_case() -> None:
    steps = [step("a"), switch({"x": [step("b", workspace=after("a"))]})]
    (text,) = found(*steps, step("c", workspace=after("b")))
    assert text.startswith("warning: step 'c': takes the workspace that step 'b' left; where step")


def test_a_loop_that_takes_the_same_workspace_in_every_round_is_found() -> None:
    (text,) = found(loop(step("a")))
    assert text.startswith("error: step 'a': in the second round of loop 'loop': takes the")


def test_a_mistake_inside_a_loop_is_named_once() -> None:
    (text,) = found(loop(step("a", "plain", dya=1)))
    assert text == "error: step 'a': params: Params has no field 'dya'; did you mean 'day'?"


def test_without_modules_a_doubtful_step_is_a_warning() -> None:
    (text,) = found(step("a"), step("b"), tasks=None)
    assert text.startswith("warning: step 'b': ")
    assert text.endswith("(unless one of them is read-only)")
    (text,) = found(fork([step("a")], [step("b")]), join("a", "b"), tasks=None)
    assert text.startswith("warning: step 'fork': steps 'a' and 'b' publish")


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([step("a", "wrte")], "no given module has a task 'wrte'; did you mean 'write'?"),
        ([step("a", dya=1)], "params: Params has no field 'dya'; did you mean 'day'?"),
        ([step("a", count=1)], "params: Params has no field 'count'"),
        ([step("a", howMany=-1)], "params: howMany: Input should be greater than or equal to 0"),
        ([step("a", day=["x"])], "params: day: Input should be a valid string"),
        ([step("a", nested={"x": "y"})], "params: nested.x: Input should be a valid integer"),
        ([step("a", "needs")], "params: rows: Field required"),
        (
            [step("a"), step("b", workspace="${ab.output.workspace}")],
            "${ab.output.workspace}: the workflow has no step 'ab'; did you mean 'a'?",
        ),
        (
            [step("a", workspace=after("b")), step("b", workspace=INPUT)],
            "${b.output.workspace}: step 'b' does not run before this one",
        ),
        (
            [step("a"), step("b", workspace=after("a"), day="${a.output.rows}")],
            "${a.output.rows}: the output of a task has workspace and result only",
        ),
        (
            [step("a"), step("b", workspace=after("a"), day="${a.output.result.row}")],
            "the result of 'write' has no 'row'; did you mean 'rows'?",
        ),
        (
            [step("a"), step("b", workspace=after("a"), day="${a.output.workspace.commit}")],
            "a workspace has repository, branch, ref_type, ref only",
        ),
        (
            [step("a", workspace={"repository": "r", "branch": "b", "ref_type": "commit"})],
            "workspace: missing ref",
        ),
        (
            [
                step(
                    "a",
                    workspace={
                        "repository": "r",
                        "branch": "b",
                        "ref_type": "commit",
                        "ref": "main",
                    },
                )
            ],
            "workspace: ref must be the full id of a commit (64 hex digits)",
        ),
        ([step("a", workspace="main")], 'workspace must be "${workflow.input.workspace}"'),
        (
            [{**step("a"), "inputParameters": {"params": {}}}],
            'inputParameters needs "workspace", such as "${workflow.input.workspace}"',
        ),
        (
            [{**step("a"), "inputParameters": {"workspace": INPUT}}],
            'inputParameters needs "params", such as {}',
        ),
        (
            [{**step("a"), "inputParameters": {"workspace": INPUT, "params": {}, "day": 1}}],
            'inputParameters has "day", which no task takes',
        ),
        (
            [
                {
                    **step("a", "plain"),
                    "inputParameters": {"workspace": INPUT, "params": {}},
                }
            ],
            'inputParameters has "workspace", which no task takes (the task takes none)',
        ),
        ([step("a"), step("a", workspace=after("a"))], "the reference name is used twice"),
        ([{"name": "write", "type": "SIMPLE"}], 'the step needs "taskReferenceName": "…"'),
    ],
)
def test_a_mistake_is_named_with_its_step_and_the_way_out(steps: list[Json], text: str) -> None:
    texts = [item for item in found(*steps) if item.startswith("error: ")]
    assert len(texts) == 1
    assert text in texts[0]


def nested(levels: int, kind: str) -> Json:
    inner = step("a")
    for number in range(levels):
        inner = loop(inner, reference=f"loop{number}") if kind == "steps" else {"x": [inner]}
    return inner


@pytest.mark.parametrize(
    ("levels", "kind", "text"),
    [(12, "steps", "forks, switches and loops are nested"), (60, "values", "it is nested more")],
)
def test_a_file_that_is_nested_without_measure_is_refused(
    tmp_path: Path, levels: int, kind: str, text: str
) -> None:
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps({"name": "w", "tasks": [nested(levels, kind)]}))
    with pytest.raises(DefinitionError, match=text):
        read_workflow(file)


@task(
    name="dims",
    owner_email="a@example.com",
    workspace=WorkspaceSpec(inputs={"dims": InputSpec(repository="dims")}),
)
def dims(workspace: Path, params: Params, inputs: Mapping[str, Path]) -> Result:
    return Result()


def test_the_inputs_beside_the_workspace_are_looked_at_too() -> None:
    tasks = [*TASKS, definition_of(dims)]

    def given(inputs: Any, name: str = "dims") -> list[str]:
        first = step("a")
        second = step("b", name, after("a"))
        second["inputParameters"]["inputs"] = inputs
        return found(first, second, tasks=tasks)  # type: ignore[arg-type]

    # An input may be an older commit than the one that a step before published.
    assert given({"dims": INPUT}) == []
    assert given("${workflow.input.all}") == []
    assert given([]) == ["error: step 'b': inputs must be an object, not list"]
    assert given({}) == ["error: step 'b': inputs: missing 'dims', a workspace"]
    assert given({"dims": INPUT, "dmis": INPUT}) == [
        "error: step 'b': inputs: the task has no 'dmis'; did you mean 'dims'?"
    ]
    assert given({"dims": {"repository": "x"}})[0].endswith(
        "inputs.dims: missing branch, ref_type, ref"
    )
    assert "which no task takes (the task takes none)" in given({"dims": INPUT}, "write")[0]
    (text,) = found(step("a", "dims"), tasks=tasks)  # type: ignore[arg-type]
    assert 'inputParameters needs "inputs"' in text


def test_what_cannot_be_followed_is_said() -> None:
    assert found(workflows.step("s", "SUB_WORKFLOW")) == [
        "warning: step 's': what a SUB_WORKFLOW runs is not looked into"
    ]
    assert found(step("a", workspace="${workflow.variables.w}")) == [
        "warning: step 'a': where ${workflow.variables.w} comes from is not followed"
    ]


def test_a_task_of_another_kind_of_worker_is_no_error() -> None:
    other = simple_task("mail", {"to": "x"}, reference="m")
    assert found(other) == ["warning: step 'm': no given module has a task 'mail'"]
    assert found(other, tasks=None) == []


def test_the_output_of_the_workflow_is_looked_at_too() -> None:
    (text,) = found(step("a"), outputParameters={"x": "${b.output.workspace}"})
    assert text == "error: ${b.output.workspace}: the workflow has no step 'b'"


def test_the_demonstration_s_workflow_has_no_mistake() -> None:
    modules = [f"webshop.{name}" for name in ("ingest", "clean", "aggregate", "quality")]
    definition = webshop_workflow.definition()
    workflow = WorkflowFile(definition["name"], 1, definition)
    assert check_workflow(workflow, load_tasks(modules)) == []


@pytest.mark.parametrize(
    ("extra", "found"), [("allow", 0), ("ignore", 0), ("forbid", 1), (None, 1)]
)
def test_a_model_says_itself_what_to_do_with_keys_that_it_does_not_know(
    extra: Any, found: int
) -> None:
    config = ConfigDict(extra=extra) if extra else ConfigDict()
    model = create_model("Model", __config__=config, day=(str, "today"))
    assert len(list(params_problems({"dya": "x"}, model))) == found


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {**step("s"), "type": "simple"},
            "error: step 's': the type 'simple' is not one of Conductor's own; "
            "did you mean 'SIMPLE'?",
        ),
        (
            {**step("s"), "type": "MY_OWN"},
            "warning: step 's': the type 'MY_OWN' is not one of Conductor's own",
        ),
        (
            {**fork(reference="s"), "forkTasks": [step("a")]},
            "error: step 's': forkTasks must be a list of lists of steps: "
            '"forkTasks": [[…], […]]',
        ),
        (
            join("b"),
            "error: step 'join': joinOn names 'b', which is no reference name",
        ),
        (
            {**loop(reference="s"), "loopOver": step("a")},
            "error: step 's': loopOver must be a list of steps",
        ),
        (
            {**switch({}, reference="s"), "decisionCases": {"x": step("a")}},
            "error: step 's': decisionCases must hold a list of steps for each case: "
            '{"CASE": […]}',
        ),
        (
            {**switch({}, reference="s"), "defaultCase": step("a")},
            "error: step 's': defaultCase must be a list of steps",
        ),
        (
            {**switch({}, reference="s"), "defaultCase": ["write"]},
            'error: a step is an object, {"name": "…", …}, not "write"',
        ),
    ],
)
def test_a_step_that_conductor_would_take_for_something_else_is_named(
    wrong: Json, text: str
) -> None:
    assert text in found(wrong)


def test_what_is_no_step_is_named() -> None:
    """It was passed over, and the workflow was said to be right."""
    steps: list[Any] = [None, step("a"), ["b"]]
    assert [text.rpartition("not ")[2] for text in found(*steps)] == ["null", '["b"]']
