from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from perago import ExecutionLimits, TaskControls, task
from perago.tasks.definition import definition_of
from perago.tasks.drift import (
    ABSENT,
    DifferenceKind,
    breaks_contract,
    compare_taskdefs,
    updated_taskdef,
)
from perago.tasks.taskdef import build_taskdef


class Params(BaseModel):
    title: str = Field("x", description="What it is called.")
    count: int = Field(1, ge=1)
    note: str | None = None


class Result(BaseModel):
    ok: bool


def body(workspace: Path, params: Params) -> Result:
    return Result(ok=True)


def defined(**options: Any) -> dict[str, Any]:
    definition = definition_of(task(name="t", owner_email="data@example.com", **options)(body))
    assert definition is not None
    return build_taskdef(definition)


def registered() -> dict[str, Any]:
    """What Conductor 3.32 shows for it."""
    shown = copy.deepcopy(defined())
    for schema in ("inputSchema", "outputSchema"):
        shown[schema] |= {"createTime": 0, "updateTime": 0}
    return shown | {
        "createTime": 1,
        "updateTime": 0,
        "createdBy": "",
        "inputTemplate": {},
        "rateLimitPerFrequency": 0,
        "rateLimitFrequencyInSeconds": 1,
        "maxRetryDelaySeconds": 0,
        "runtimeMetadata": [],
    }


def params_of(taskdef: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = taskdef["inputSchema"]["data"]["properties"]["params"]["properties"]
    return found


def test_what_conductor_adds_of_its_own_is_no_difference() -> None:
    assert compare_taskdefs(defined(), registered()) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retryCount", 9),
        ("retryLogic", "LINEAR_BACKOFF"),
        ("timeoutSeconds", 7200),
        ("responseTimeoutSeconds", 60),
        ("concurrentExecLimit", 5),
        ("rateLimitPerFrequency", 5),
        ("description", "edited"),
        ("ownerEmail", "other@example.com"),
        ("enforceSchema", True),
    ],
)
def test_a_value_tuned_in_conductor_breaks_no_contract(field: str, value: Any) -> None:
    (difference,) = compare_taskdefs(defined(), registered() | {field: value})
    assert (difference.path, difference.registered, difference.kind) == (
        field,
        value,
        DifferenceKind.TUNING,
    )
    assert not breaks_contract([difference])


@pytest.mark.parametrize("shown", [None, 0])
def test_a_limit_that_nobody_set_is_no_limit_however_it_is_shown(shown: int | None) -> None:
    assert compare_taskdefs(defined(), registered() | {"concurrentExecLimit": shown}) == []


def test_a_limit_that_only_the_code_has_is_a_difference() -> None:
    limits = TaskControls(limits=ExecutionLimits(concurrent=2, rate=3, rate_window_seconds=4))
    found = compare_taskdefs(defined(controls=limits), registered())
    assert [(it.path, it.registered, it.defined) for it in found] == [
        ("concurrentExecLimit", 0, 2),
        ("rateLimitPerFrequency", 0, 3),
        ("rateLimitFrequencyInSeconds", 1, 4),
    ]


@pytest.mark.parametrize("keys", [["params"], ["params", "workspace"], []])
def test_other_input_keys_break_the_contract(keys: list[str]) -> None:
    assert breaks_contract(compare_taskdefs(defined(), registered() | {"inputKeys": keys}))


@pytest.mark.parametrize("schema", [None, {}, {"name": "t.input", "version": 1, "type": "JSON"}])
def test_a_schema_that_is_not_registered_breaks_the_contract(schema: Any) -> None:
    assert breaks_contract(compare_taskdefs(defined(), registered() | {"inputSchema": schema}))
    missing = {key: value for key, value in registered().items() if key != "outputSchema"}
    (difference,) = compare_taskdefs(defined(), missing)
    assert difference.registered is ABSENT
    assert breaks_contract([difference])


def test_schema_differences_are_named_by_path_with_old_and_new() -> None:
    theirs = registered()
    params = params_of(theirs)
    params["count"]["minimum"] = 0
    params["extra"] = {"type": "string"}
    del params["note"]
    found = compare_taskdefs(defined(), theirs)
    start = "inputSchema.properties.params.properties"
    assert [(it.path, it.registered, it.defined) for it in found] == [
        (f"{start}.count.minimum", 0, 1),
        (f"{start}.note", ABSENT, params_of(defined())["note"]),
        (f"{start}.extra", {"type": "string"}, ABSENT),
    ]
    assert all(it.kind is DifferenceKind.CONTRACT for it in found)


def test_words_for_people_in_a_schema_break_no_contract() -> None:
    theirs = registered()
    params_of(theirs)["title"]["description"] = "Old words."
    theirs["inputSchema"]["data"]["title"] = "Old title"
    found = compare_taskdefs(defined(), theirs)
    assert len(found) == 2
    assert not breaks_contract(found)


def test_a_property_named_like_a_word_of_json_schema_is_a_property() -> None:
    theirs = registered()
    params_of(theirs)["title"]["type"] = "integer"
    assert breaks_contract(compare_taskdefs(defined(), theirs))
    theirs = registered()
    del params_of(theirs)["title"]
    assert breaks_contract(compare_taskdefs(defined(), theirs))


def test_a_default_of_null_is_not_the_same_as_no_default() -> None:
    theirs = registered()
    del params_of(theirs)["note"]["default"]
    (difference,) = compare_taskdefs(defined(), theirs)
    assert (difference.registered, difference.defined) == (ABSENT, None)


def test_true_is_not_one_and_one_point_zero_is() -> None:
    theirs = registered()
    params_of(theirs)["count"]["minimum"] = 1.0
    assert compare_taskdefs(defined(), theirs) == []
    params_of(theirs)["count"]["minimum"] = True
    assert len(compare_taskdefs(defined(), theirs)) == 1


def test_an_update_keeps_what_only_conductor_knows_and_drops_old_limits() -> None:
    theirs = registered() | {"maxRetryDelaySeconds": 9, "retryCount": 9, "concurrentExecLimit": 5}
    update = updated_taskdef(defined(), theirs)
    assert update["maxRetryDelaySeconds"] == 9
    assert update["retryCount"] == 3
    assert "concurrentExecLimit" not in update
    assert compare_taskdefs(defined(), update) == []
