"""Whatever an input, a result or an exception holds, it ends its attempt with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from perago.errors import BodyError, Disposition, InputError, ResultError, TaskFailed
from perago.protocol.json_value import MAX_DEPTH, encode_json, is_too_deep
from perago.protocol.outcome import Completed, failure_of
from support.memory_world import InMemoryWorld, assert_untouched, failed


class Anything(BaseModel):
    """A model that takes any value, and keeps NaN and infinities as they are."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    value: Any = None


class Rude(BaseModel):
    """A model whose own code ends the process."""

    value: int = 0

    @field_validator("value")
    @classmethod
    def _leave(cls, _: int) -> int:
        raise SystemExit(3)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Mute(Exception):  # noqa: N818  the name says what it does
    """An exception that cannot be shown."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    __repr__ = __str__


class Leaving(Exception):  # noqa: N818
    """An exception whose text ends the process."""

    def __str__(self) -> NoReturn:
        raise SystemExit(1)


class Hintless(TaskFailed):
    """An author's own error with a hint that is no text."""

    hint: Any = Mute()


RESULTS = {
    "a thousand levels": nested(1000),
    "one level too many": nested(MAX_DEPTH),
    "a lone surrogate": "\ud800",
    "a lone surrogate as a key": {"\udfff": 1},
    "NaN": float("nan"),
    "an infinity deep inside": [[{"x": float("inf")}]],
    "20 MB": "x" * 20_000_000,
    "an object that JSON does not know": object(),
    "a number of many digits": 10**5000,
}


@pytest.mark.parametrize("value", RESULTS.values(), ids=list(RESULTS))
def test_a_result_that_cannot_be_sent_fails_before_anything_is_published(
    world: InMemoryWorld, value: Any
) -> None:
    def body(files: dict[str, bytes]) -> Anything:
        files["b"] = b"2"
        return Anything.model_construct(value=value)

    failed(world.run(world.job(body, result_model=Anything)), ResultError)
    assert_untouched(world)


def test_a_result_model_that_ends_the_process_fails_the_attempt(world: InMemoryWorld) -> None:
    outcome = world.run(world.job(lambda _: {"value": 1}, result_model=Rude))
    assert "sys.exit(3)" in failed(outcome, BodyError)
    assert_untouched(world)


def test_an_output_is_the_data_that_its_json_holds(world: InMemoryWorld) -> None:
    value = {"deep": nested(MAX_DEPTH - 10), "text": "ä\u2028😀", "pair": (1, 2)}
    outcome = world.run(
        world.job(lambda _: Anything(value=value), result_model=Anything, read_only=True)
    )
    assert isinstance(outcome, Completed)
    assert outcome.output["result"]["value"]["pair"] == [1, 2]
    assert json.loads(encode_json(outcome.output)) == outcome.output


@pytest.mark.parametrize("levels", [MAX_DEPTH, 1_000, 100_000])
def test_an_input_of_too_many_levels_fails_the_attempt(world: InMemoryWorld, levels: int) -> None:
    payload = {**world.payload(), "params": {"n": nested(levels)}}
    given = replace(world.deliver(), payload=payload)
    assert "levels deep" in failed(world.run(world.job(), given), InputError)
    assert_untouched(world)


def test_depth_counts_objects_and_arrays() -> None:
    assert not is_too_deep(nested(3), 3)
    assert is_too_deep(nested(4), 3)
    assert not is_too_deep({"a": {"b": [1]}}, 3)
    assert is_too_deep({"a": {"b": [[1]]}}, 3)
    assert not is_too_deep([[1], [2], [3]] * 50, 2)


@pytest.mark.parametrize("error", [Mute(), Leaving()], ids=["raises", "exits"])
def test_an_exception_without_a_readable_text_is_a_failure_like_any_other(error: Exception) -> None:
    outcome = failure_of(error)
    assert outcome.reason.startswith(f"{type(error).__name__}: <its text cannot be read")
    assert outcome.disposition is Disposition.RETRY


def test_a_hint_that_is_no_text_does_not_matter() -> None:
    assert "cannot be read" in str(failure_of(Hintless("no")).hint)


def test_texts_of_a_failure_are_bounded_and_valid_unicode() -> None:
    outcome = failure_of(TaskFailed("\ud800" * 10_000_000, hint="\udc00" * 10_000_000))
    texts = (outcome.reason, outcome.hint or "", outcome.trace)
    assert [len(text.encode()) < 25_000 for text in texts] == [True] * 3
    assert outcome.trace.startswith("perago.errors.TaskFailed")


def test_a_long_chain_of_causes_is_a_failure_like_any_other() -> None:
    error: Exception = ValueError("first")
    for _ in range(3000):
        later = ValueError("next")
        later.__cause__ = error
        error = later
    outcome = failure_of(error)
    assert outcome.reason == "ValueError: next"
    assert len(outcome.trace) <= 20_000


def test_a_full_disk_and_an_absent_server_are_told_apart_from_a_failing_task() -> None:
    assert failure_of(OSError(28, "No space left on device")).is_infrastructure
    assert not failure_of(FileNotFoundError(2, "No such file")).is_infrastructure
    assert not failure_of(TaskFailed("no")).is_infrastructure
