from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perago import InputSpec, SparkWorkspace, WorkspaceSpec, require_file
from perago.names import ACTIONS_FOLDER
from perago.tasks.taskdef import build_taskdef
from support.definitions import Params, Result, define, file_body, refused


@pytest.mark.parametrize(
    ("prefix", "normal"),
    [
        ("/", ""),
        ("audio", "audio"),
        ("/audio/render/", "audio/render"),
        ("b\u00fccher", "b\u00fccher"),
        ("..audio", "..audio"),
        ("_lakefs_actions_of_mine", "_lakefs_actions_of_mine"),
    ],
)
def test_one_slash_at_either_end_of_a_prefix_is_dropped(prefix: str, normal: str) -> None:
    spec = WorkspaceSpec(prefix=prefix)
    assert list(spec.problems()) == []
    assert spec.normal_prefix == normal


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "//", "//a", "a//", "a//b", "../a", "a/./b", "a\\b", "a\nb", "a\x7f", None, 3),
        *("_lakefs_actions", "/_lakefs_actions/x", ACTIONS_FOLDER),
    ],
)
def test_a_prefix_that_names_no_folder_is_a_problem(prefix: Any) -> None:
    assert list(WorkspaceSpec(prefix=prefix).problems())


@pytest.mark.parametrize("guardrails", ["raw", None, require_file("a"), {require_file("a")}])
def test_guardrails_must_come_as_a_list(guardrails: Any) -> None:
    (problem,) = WorkspaceSpec(pre=guardrails).problems()
    assert "WorkspaceSpec.pre must be a list of guardrails" in problem


def test_every_problem_of_a_spec_is_reported() -> None:
    bad: Any = WorkspaceSpec("../x", [require_file("")], [require_file, 4], read_only="no")  # type: ignore[arg-type, list-item]
    assert len(list(bad.problems())) == 5


# Inputs


def reads_inputs(workspace: Path, params: Params, inputs: Mapping[str, Path]) -> Result:
    return Result(count=len(inputs))


def on_spark(workspace: SparkWorkspace, params: Params) -> Result:
    return Result(count=0)


def spark_with_folders(
    workspace: SparkWorkspace, params: Params, inputs: dict[str, Path]
) -> Result:
    return Result(count=0)


DIMS = WorkspaceSpec(inputs={"dims": InputSpec(repository="dims", prefix="/tables/")})


@pytest.mark.parametrize("body", [reads_inputs, on_spark])
def test_inputs_are_a_key_of_the_payload(body: Any) -> None:
    spec = WorkspaceSpec(inputs={**DIMS.inputs, "any-where": InputSpec()})
    taskdef = build_taskdef(define(body, workspace=spec))
    assert taskdef["inputKeys"] == ["workspace", "params", "inputs"]
    assert taskdef["outputKeys"] == ["workspace", "result"]
    data = taskdef["inputSchema"]["data"]
    assert data["required"] == ["workspace", "params", "inputs"]
    inputs = data["properties"]["inputs"]
    assert inputs["required"] == ["dims", "any-where"]
    assert inputs["properties"]["dims"]["properties"]["repository"] == {"const": "dims"}
    assert inputs["properties"]["any-where"] == data["properties"]["workspace"]
    assert DIMS.inputs["dims"].normal_prefix == "tables"


@pytest.mark.parametrize(
    ("body", "spec", "said"),
    [
        (file_body, DIMS, "does not take them: write (workspace: Path, params: Model, inputs:"),
        (reads_inputs, WorkspaceSpec(), "takes inputs and there are none"),
        (reads_inputs, None, "takes inputs and there are none"),
        (spark_with_folders, DIMS, "read workspace.input(path, source=NAME)"),
    ],
)
def test_a_function_takes_folders_of_inputs_if_there_are_any(
    body: Any, spec: WorkspaceSpec | None, said: str
) -> None:
    assert said in refused(body, workspace=spec)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["dims"], "must be a dict of InputSpec"),
        ({"a/b": InputSpec()}, "write a name of letters"),
        ({7: InputSpec()}, "write a name of letters"),
        ({"dims": "repo"}, "'dims' must be InputSpec(…), not 'repo'"),
        ({"dims": InputSpec(repository="")}, "'dims': repository must be a name, not ''"),
        ({"dims": InputSpec(branch=None)}, "'dims': branch must be a name, not None"),  # type: ignore[arg-type]
        ({"dims": InputSpec(prefix="../x")}, "'dims': InputSpec.prefix '../x': write a folder"),
    ],
)
def test_an_input_that_names_nothing_is_a_problem(inputs: Any, said: str) -> None:
    [problem] = WorkspaceSpec(inputs=inputs).problems()
    assert problem.startswith("WorkspaceSpec.inputs")
    assert said in problem
