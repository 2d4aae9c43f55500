"""What a commit says about the execution that made it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, Secret, SecretBytes, field_serializer

from perago.masking import remember_secret
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.record import Record, hash_params, read_record, recorded_params
from perago.protocol.workspace import Commit

ATTEMPT = Attempt("w-1", "t-1", 2, "step", iteration=3, scheduled_ms=1000)
RECORD = replace(
    Record.of(
        Execution(Claim(ATTEMPT, "claim"), "e1"), ref="r" * 64, params={"a": 1}, result='{"x":1}'
    ),
    task_name="clean",
    branch="main",
    prefix="",
    params='{"a":1}',
    code_fingerprint="f" * 64,
    perago_version="1.2.3",
    pre_guardrails=2,
    post_guardrails=0,
)
# What a record had before it had a version, and has in every version.
IDENTITY = {
    "workflow_instance_id",
    "reference_name",
    "iteration",
    "task_id",
    "retry_count",
    "scheduled_ms",
    "claim",
    "execution_id",
    "ref",
    "params_hash",
}


def read(metadata: dict[str, str]) -> Record | None:
    return read_record(Commit("c", ("p",), metadata))


@pytest.mark.parametrize("result", [None, "", '{"text":"ü\\n"}'])
def test_a_record_is_read_back_as_it_was_written(result: str | None) -> None:
    record = replace(RECORD, result=result)
    metadata = record.metadata()
    assert all(key.startswith("perago.") for key in metadata)
    assert all(isinstance(value, str) for value in metadata.values())
    assert read({**metadata, ".lakefs.merge.strategy": "default", "other": "x"}) == record


def test_warnings_are_recorded_as_a_bounded_list() -> None:
    record = RECORD.with_warnings([f"{n}\n{'x' * 1000}" for n in range(25)])
    assert read(record.metadata()) == record
    *shown, rest = json.loads(record.metadata()["perago.warnings"])
    assert [len(text) for text in shown] == [300] * 10
    assert (shown[9][:3], rest) == ("9 x", "… and 15 more")
    assert record.with_warnings([]) == RECORD


def test_a_commit_without_a_whole_record_has_none() -> None:
    assert read({}) is None
    for name in IDENTITY:
        metadata = RECORD.metadata()
        del metadata[f"perago.{name}"]
        assert read(metadata) is None
    assert read({**RECORD.metadata(), "perago.retry_count": "two"}) is None


def test_a_record_from_before_records_had_a_version_is_read() -> None:
    old = {key: value for key, value in RECORD.metadata().items() if key[7:] in IDENTITY}
    found = read(old)
    assert found is not None
    assert found.record_version == 1
    assert found.logical == RECORD.logical
    assert {found.task_name, found.branch, found.prefix, found.params, found.result} == {None}
    assert read({**old, "perago.result": "{}"}) == replace(found, result="{}")


def test_a_record_of_a_version_to_come_says_who_made_the_commit() -> None:
    metadata = {**RECORD.metadata(), "perago.record_version": "3", "perago.new_key": "x"}
    assert read(metadata) == replace(RECORD, record_version=3)


class Params(BaseModel):
    """What may be said of a task."""

    model_config = ConfigDict(populate_by_name=True)

    day: date = Field(default=date(2026, 1, 2), alias="theDay")
    items: list[str] = []


class SecretParams(BaseModel):
    """What may not."""

    keys: dict[str, list[SecretBytes] | None] = {}


class Hostile(BaseModel):
    """What cannot."""

    n: int = 0

    @field_serializer("n")
    def write(self, _: int) -> int:
        raise RuntimeError("hunter2")


class Sealed(BaseModel):
    """A secret that its schema does not tell of."""

    pin: Secret[int]


def test_params_are_recorded_as_their_model_read_them() -> None:
    assert recorded_params(Params()) == '{"theDay":"2026-01-02","items":[]}'


def test_params_that_are_too_long_secret_or_not_writable_are_not_recorded() -> None:
    assert recorded_params(Params(items=["x" * 3000])) is not None
    assert recorded_params(Params(items=["x" * 5000])) is None
    # Bounded in bytes as they are stored, not in characters.
    assert recorded_params(Params(items=["ü" * 1000])) is None
    assert recorded_params(SecretParams()) is None
    assert recorded_params(Hostile()) is None


def test_a_secret_of_the_worker_in_params_is_masked() -> None:
    remember_secret("key-in-params")
    assert "key-in-params" not in str(recorded_params(Params(items=["a key-in-params"])))


def test_a_secret_that_the_schema_hides_is_never_recorded_in_clear() -> None:
    assert "4711" not in str(recorded_params(Sealed(pin=Secret(4711))))


WHAT = (
    "task_name",
    "branch",
    "prefix",
    "params",
    "code_fingerprint",
    "perago_version",
    "pre_guardrails",
    "post_guardrails",
    "warnings",
    "inputs",
)


@pytest.mark.parametrize("number", ["", "1.5", "1e3", "٣", " 1", "1_000", "9" * 19, "9" * 5000])
@pytest.mark.parametrize("field", ["iteration", "retry_count", "scheduled_ms", "record_version"])
def test_a_record_with_a_number_that_is_none_is_no_record(field: str, number: str) -> None:
    assert read({**RECORD.metadata(), f"perago.{field}": number}) is None


@pytest.mark.parametrize("value", [None, 3, ["x"], {"x": "y"}, b"x"])
def test_a_record_with_a_value_that_is_no_text_is_no_record(value: Any) -> None:
    for key in RECORD.metadata().keys() - {f"perago.{field}" for field in WHAT}:
        assert read({**RECORD.metadata(), key: value}) is None


@pytest.mark.parametrize("number", ["", "1.5", "٣", " 1", "9" * 5000, None, 3])
@pytest.mark.parametrize("field", ["pre_guardrails", "post_guardrails"])
def test_a_damaged_number_for_the_history_is_absent_and_the_record_stays(
    field: str, number: Any
) -> None:
    absent: dict[str, Any] = {field: None}
    damaged = read({**RECORD.metadata(), f"perago.{field}": number})
    assert damaged == replace(RECORD, **absent)


@pytest.mark.parametrize("field", WHAT)
def test_a_value_for_the_history_that_is_no_text_is_absent_and_the_record_stays(field: str) -> None:
    absent: dict[str, Any] = {field: None}
    not_text: Any = ["x"]
    damaged = read({**RECORD.metadata(), f"perago.{field}": not_text})
    assert damaged == replace(RECORD, **absent)


def test_another_tools_keys_are_no_record_and_change_none() -> None:
    bare = {key.removeprefix("perago."): value for key, value in RECORD.metadata().items()}
    assert read(bare) is None
    assert read({**RECORD.metadata(), "ref": "theirs", "task_id": "theirs"}) == RECORD


@pytest.mark.parametrize(
    ("change", "later"),
    [
        ({}, False),
        ({"task_id": "t-2", "scheduled_ms": 999}, True),
        ({"task_id": "t-2", "scheduled_ms": 1001}, False),
        ({"task_id": "t-2", "scheduled_ms": 1000, "retry_count": 1}, True),
        ({"task_id": "t-2", "scheduled_ms": 1000, "retry_count": 3}, False),
        # A restart counts retries anew: the clock decides.
        ({"task_id": "t-2", "scheduled_ms": 2000, "retry_count": 0}, False),
        # A rerun keeps the task id: the clock decides.
        ({"scheduled_ms": 999}, True),
        ({"task_id": "t-2", "scheduled_ms": 1, "reference_name": "other"}, False),
        ({"task_id": "t-2", "scheduled_ms": 1, "iteration": 4}, False),
        ({"task_id": "t-2", "scheduled_ms": 1, "workflow_instance_id": "w-2"}, False),
    ],
)
def test_a_record_knows_whether_a_later_attempt_made_it(
    change: dict[str, int | str], later: bool
) -> None:
    attempt = replace(ATTEMPT, **change)  # type: ignore[arg-type]
    assert RECORD.is_of_later_attempt_than(attempt) is later


def test_params_are_hashed_whatever_their_order() -> None:
    assert hash_params({"a": 1, "b": {"c": 2, "d": 3}}) == hash_params(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )
    different: list[dict[str, Any]] = [
        {"a": 1},
        {"a": "1"},
        {"a": 1.5},
        {"a": None},
        {},
        {"a": [1]},
        {"a": "\ud800"},
    ]
    assert len({hash_params(params) for params in different}) == len(different)
