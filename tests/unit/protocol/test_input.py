"""Section 3: the shape of an input, and errors that say what is wrong without echoing values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, computed_field

from perago.errors import InputError, PublishFenceError, ResultError
from perago.protocol.job import Job, Policy
from perago.protocol.outcome import Failed
from perago.protocol.steps import validate_params
from perago.protocol.workspace import parse_input
from support.memory_world import InMemoryWorld, completed, failed, writes

REF = "a" * 64


def payload(**workspace: Any) -> dict[str, Any]:
    """An input; ``...`` leaves a field out."""
    given: dict[str, Any] = {"repository": "r", "branch": "main", "ref_type": "commit", "ref": REF}
    given.update(workspace)
    return {
        "workspace": {key: value for key, value in given.items() if value is not ...},
        "params": {"a": 1},
    }


def test_a_right_input_is_taken_apart() -> None:
    found = parse_input(payload(), with_workspace=True)
    assert found.workspace is not None
    assert (found.workspace.repository, found.workspace.branch) == ("r", "main")
    assert (found.workspace.ref, found.params) == (REF, {"a": 1})


@pytest.mark.parametrize("name", ["ref_type", "refType"])
def test_either_spelling_of_ref_type_is_repeated(name: str) -> None:
    given = payload(**{"ref_type": ..., name: "commit"})
    space = parse_input(given, with_workspace=True).workspace
    assert space is not None
    assert space.payload("b" * 64) == {
        "repository": "r",
        "branch": "main",
        name: "commit",
        "ref": "b" * 64,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "missing params, workspace"),
        ({"params": {}}, "missing workspace"),
        ({**payload(), "more": 1}, "unexpected 'more'"),
        ({**payload(), "params": None}, "params must be an object, not NoneType"),
        ({**payload(), "params": [1]}, "params must be an object, not list"),
        ({**payload(), "workspace": None}, "workspace: "),
        ({**payload(), "workspace": "main"}, "workspace: "),
        (payload(ref_type="branch"), "ref_type: "),
        (payload(ref_type=...), "ref_type: "),
        (payload(refType="commit"), "not both"),
        (payload(ref="main"), "full commit id"),
        (payload(ref=REF[:12]), "full commit id"),
        (payload(ref=REF.upper()), "full commit id"),
        (payload(ref=f"{REF}\n"), "full commit id"),
        (payload(ref=5), "ref: "),
        (payload(ref=...), "ref: "),
        (payload(branch=""), "must not be empty"),
        (payload(repository=""), "must not be empty"),
        (payload(repository=...), "repository: "),
        (payload(endpoint="https://elsewhere"), "endpoint: "),
        (payload(spelling="refType"), "unexpected 'spelling'"),
    ],
)
def test_a_wrong_input_is_refused_with_what_is_wrong(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_input(given, with_workspace=True)
    assert said in str(raised.value)
    assert "https://elsewhere" not in str(raised.value)


def test_a_task_without_workspace_takes_params_only() -> None:
    assert parse_input({"params": {"a": 1}}, with_workspace=False).workspace is None
    with pytest.raises(InputError, match="unexpected 'workspace'"):
        parse_input(payload(), with_workspace=False)


@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [
        (("*/*",), True),
        (("songs-*/main", "repo/*"), True),
        (("rep?/ma*",), True),
        (("songs-*/main",), False),
        (("repo/dev",), False),
        (("REPO/main",), False),
        (("re*/main-*",), False),
    ],
)
def test_a_worker_takes_only_workspaces_that_a_pattern_allows(
    patterns: tuple[str, ...], allowed: bool
) -> None:
    world = InMemoryWorld(policy=Policy(allowed_workspaces=patterns))
    outcome = world.run(world.job(writes(b=b"2")))
    if allowed:
        completed(outcome)
        return
    said = failed(outcome, InputError)
    assert "this worker does not work on 'repo', branch 'main'" in said
    assert isinstance(outcome, Failed)
    assert "PERAGO_ALLOWED_WORKSPACES" in (outcome.hint or "")
    # Before anything is read.
    assert "lake.get_commit" not in world.faults.calls


@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [
        (("repo/main",), False),
        (("repo/mai?", "other/*"), False),
        (("repo/main", "repo/private"), False),
        (("repo/main", "re*/*"), True),
        (("*/*",), True),
    ],
)
def test_a_commit_of_another_branch_is_not_read_in_the_name_of_an_allowed_one(
    patterns: tuple[str, ...], allowed: bool
) -> None:
    world = InMemoryWorld(policy=Policy(allowed_workspaces=patterns))
    world.lake.repository("repo").create_branch("private", "main")
    private = world.lake.write_and_commit("repo", "private", {"data/secret": b"s"}).id
    seen: list[list[str]] = []
    job = world.job(lambda files: seen.append(list(files)), read_only=True)
    outcome = world.run(job, world.deliver(world.payload(ref=private)))
    if allowed:
        completed(outcome)
        assert seen
        return
    said = failed(outcome, InputError)
    assert f"workspace: commit {private} is not on branch 'main' of 'repo'" in said
    assert isinstance(outcome, Failed)
    assert "HEAD of the branch" in (outcome.hint or "")
    assert seen == []


def test_commits_of_an_allowed_branch_are_read_also_when_it_has_moved_on() -> None:
    world = InMemoryWorld(policy=Policy(allowed_workspaces=("repo/main",)))
    world.commit({"data/later": b"2"})
    completed(world.run(world.job(read_only=True)))
    missing = world.payload(branch="main-2")
    world.policy = Policy(allowed_workspaces=("repo/main*",))
    said = failed(world.run(world.job(read_only=True), world.deliver(missing)), InputError)
    assert "workspace: no branch 'main-2' in repository 'repo'" in said


def test_a_task_that_publishes_takes_no_commit_of_another_branch() -> None:
    world = InMemoryWorld(policy=Policy(allowed_workspaces=("repo/main",)))
    world.lake.repository("repo").create_branch("private", "main")
    private = world.lake.write_and_commit("repo", "private", {"data/secret": b"s"}).id
    seen: list[Any] = []
    outcome = world.run(world.job(seen.append), world.deliver(world.payload(ref=private)))
    failed(outcome, PublishFenceError)
    assert seen == []


def test_a_value_that_cannot_be_written_as_json_is_not_in_the_message() -> None:
    class Private(BaseModel):
        token: int = 0

    def body(_: object) -> Private:
        return Private.model_construct(token="the-private-value")  # type: ignore[arg-type]

    world = InMemoryWorld()
    outcome = world.run(world.job(body, result_model=Private))
    said = failed(outcome, ResultError)
    assert isinstance(outcome, Failed)
    assert "the-private-value" not in said + outcome.trace
    assert "token" in said


class Nested(BaseModel):
    """A model in another."""

    a: int = 0


class Free(BaseModel, extra="allow"):
    """It says itself what to do with other keys."""

    a: int = 0


class Careless(BaseModel, extra="ignore"):
    """It ignores them, and says so."""

    a: int = 0
    nested: Nested = Nested()


class Strict(BaseModel):
    """It says nothing."""

    n: int = Field(0, alias="howMany")
    nested: Nested = Nested()


class Counted(BaseModel):
    """As JSON, it holds a key that is no field."""

    n: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.n


class Given(BaseModel):
    """It takes the result of another task."""

    n: int = 0
    counted: Counted = Counted()


class Mixed(BaseModel):
    """It says nothing, and a model in it does."""

    n: int = 0
    free: Free = Free()


@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        (Strict, {"n": 1}, "params: n: there is no such key; known are howMany, nested"),
        (Strict, {"nested": {"b": 1}}, "params: nested.b: there is no such key"),
        (Mixed, {"m": 1, "free": {"b": 2}}, "params: m: there is no such key; known are n, free"),
        (Strict, {"howMany": 1, "nested": {"a": 2}}, None),
        (Mixed, {"n": 1, "free": {"b": 2}}, None),
        (Counted, {"n": 1, "twice": 2}, None),
        (Counted, {"n": 1, "thrice": 3}, "params: thrice: there is no such key; known are n"),
        (Given, {"counted": {"n": 1, "twice": 2}}, None),
        (Given, {"counter": 1}, "params: counter: there is no such key; known are n, counted"),
        (Free, {"b": 1}, None),
        (Careless, {"b": 1, "nested": {"b": 1}}, None),
    ],
)
def test_an_unknown_key_in_params_is_refused_unless_the_model_allows_it(
    model: type[BaseModel], params: dict[str, Any], said: str | None
) -> None:
    job = Job("task", model, model, lambda given: given)
    if said is None:
        assert validate_params(job, params) == model.model_validate(params)
        return
    with pytest.raises(InputError) as caught:
        validate_params(job, params)
    assert str(caught.value) == said
