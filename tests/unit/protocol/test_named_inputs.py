"""Read-only inputs beside the workspace: pinned, recorded, never fenced and never written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import InputError
from perago.protocol.identity import Execution
from perago.protocol.job import InputUse, Job, Policy
from perago.protocol.run import run_attempt
from perago.protocol.workspace import parse_input
from perago.transfer.engine import Engine
from perago.transfer.workspaces import LocalWorkspaces
from support.memory_world import (
    InMemoryWorld,
    Params,
    Result,
    completed,
    failed,
)

DIMS = "dimensions"
Body = Callable[..., Any]


@pytest.fixture
def world() -> InMemoryWorld:
    """``dimensions`` holds a table below ``tables``."""
    world = InMemoryWorld()
    world.lake.create_repository(DIMS)
    changes: dict[str, bytes | None] = {"tables/shops/a": b"shop", "elsewhere": b"no"}
    world.lake.write_and_commit(DIMS, "main", changes, None)
    return world


def dims_ref(world: InMemoryWorld) -> str:
    return world.lake.get_head(DIMS, "main").id


def payload(world: InMemoryWorld, **changes: Any) -> dict[str, Any]:
    given = {"repository": DIMS, "branch": "main", "ref_type": "commit", "ref": dims_ref(world)}
    return {**world.payload(), "inputs": {"dims": {**given, **changes}}}


def with_inputs(job: Job, repository: str | None = DIMS, body: Body | None = None) -> Job:
    assert job.workspace is not None
    use = replace(job.workspace, inputs={"dims": InputUse("tables", repository)})
    return replace(job, workspace=use, body=body or job.body)


def file_job(world: InMemoryWorld, seen: list[Any], **changes: Any) -> Job:
    def body(data: Path, params: Params, inputs: dict[str, Path]) -> Result:
        seen.append(dict(world.workspaces.input_files_at(inputs["dims"])))
        world.workspaces.files_at(data)["b"] = b"2"
        world.workspaces.input_files_at(inputs["dims"])["mine"] = b"3"
        return Result()

    return with_inputs(world.job(**changes), body=body)


def run(world: InMemoryWorld, job: Job, given: dict[str, Any] | None = None) -> Any:
    return world.run(job, world.deliver(given or payload(world)))


def test_a_file_task_gets_the_folders_of_its_inputs(world: InMemoryWorld) -> None:
    seen: list[Any] = []
    ref = dims_ref(world)
    output = completed(run(world, file_job(world, seen)))
    assert seen == [{"shops/a": b"shop"}]
    assert set(output) == {"workspace", "result"}
    assert world.contents() == {"data/a": b"1", "data/b": b"2", "other/x": b"x"}
    # What the body did to the input is gone with its folder.
    assert dims_ref(world) == ref


def test_a_spark_task_reads_its_inputs_by_name(world: InMemoryWorld) -> None:
    seen: list[Any] = []
    job = world.spark_job(lambda space: seen.append(space.files("dims")))
    completed(run(world, with_inputs(job)))
    assert seen == [{"shops/a": b"shop"}]


@pytest.mark.parametrize("kind", ["file", "spark"])
def test_the_commit_of_every_input_is_recorded(world: InMemoryWorld, kind: str) -> None:
    spark = with_inputs(world.spark_job(lambda space: space.write("b", b"2")))
    completed(run(world, file_job(world, []) if kind == "file" else spark))
    recorded = json.loads(world.head.metadata["perago.inputs"])
    assert recorded == {"dims": {"repository": DIMS, "branch": "main", "ref": dims_ref(world)}}


def test_an_input_stays_at_its_commit_and_its_branch_is_never_looked_at(
    world: InMemoryWorld,
) -> None:
    given = payload(world, branch="gone")
    world.lake.write_and_commit(DIMS, "main", {"tables/shops/a": b"new"}, None)
    seen: list[Any] = []
    completed(run(world, file_job(world, seen), given))
    assert seen == [{"shops/a": b"shop"}]


def test_a_retry_with_other_inputs_adopts_nothing(world: InMemoryWorld) -> None:
    seen: list[Any] = []
    job = file_job(world, seen, recovery="adopt")
    retry = world.publish_and_die(job, world.deliver(payload(world)))
    completed(world.run(job, retry))
    assert len(seen) == 1
    world.lake.write_and_commit(DIMS, "main", {"tables/shops/a": b"new"}, None)
    other = replace(retry, payload={**payload(world)})
    completed(world.run(job, other))
    assert seen[1:] == [{"shops/a": b"new"}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ref": "0" * 64}, "inputs.dims: no commit 000"),
        ({"ref": "main"}, "inputs.dims: ref must be a full commit id"),
        ({"repository": "repo"}, "inputs.dims: the task reads repository 'dimensions', not 'repo'"),
        ({"ref_type": "branch"}, "inputs.dims: ref_type"),
        ({"spelling": "refType"}, "inputs.dims: unexpected 'spelling'"),
    ],
)
def test_an_input_that_is_not_there_fails_before_the_body(
    world: InMemoryWorld, changes: dict[str, Any], said: str
) -> None:
    seen: list[Any] = []
    outcome = run(world, file_job(world, seen), payload(world, **changes))
    assert said in failed(outcome, InputError)
    assert seen == []


def test_a_worker_reads_only_what_a_pattern_allows() -> None:
    world = InMemoryWorld(policy=Policy(allowed_workspaces=("repo/*",)))
    world.lake.create_repository(DIMS)
    said = failed(run(world, file_job(world, [])), InputError)
    assert "inputs.dims: this worker does not work on 'dimensions'" in said


@pytest.mark.parametrize("read_only", [False, True])
def test_an_input_is_no_commit_of_another_branch(world: InMemoryWorld, *, read_only: bool) -> None:
    world.policy = Policy(allowed_workspaces=("repo/*", f"{DIMS}/main"))
    world.lake.repository(DIMS).create_branch("private", "main")
    private = world.lake.write_and_commit(DIMS, "private", {"tables/secret": b"s"}).id
    seen: list[Any] = []
    outcome = run(world, file_job(world, seen, read_only=read_only), payload(world, ref=private))
    said = failed(outcome, InputError)
    assert f"inputs.dims: commit {private} is not on branch 'main' of 'dimensions'" in said
    assert seen == []
    world.lake.write_and_commit(DIMS, "main", {"tables/later": b"2"})
    completed(run(world, file_job(world, seen), payload(world)))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (..., "the input must have exactly ['inputs', 'params', 'workspace']: missing inputs"),
        (None, "inputs must be an object, not NoneType"),
        ({}, "inputs must have exactly ['dims']: missing dims"),
        ({"dims": {}, "more": {}}, "unexpected 'more'"),
    ],
)
def test_inputs_must_be_exactly_those_of_the_task(
    world: InMemoryWorld, inputs: Any, said: str
) -> None:
    given = world.payload() | ({} if inputs is ... else {"inputs": inputs})
    with pytest.raises(InputError) as caught:
        parse_input(given, with_workspace=True, inputs=["dims"])
    assert said in str(caught.value)


def test_a_task_without_inputs_takes_none(world: InMemoryWorld) -> None:
    assert "unexpected 'inputs'" in failed(run(world, world.job()), InputError)


def test_the_folders_are_beside_the_workspace_and_removed_with_it(
    world: InMemoryWorld, tmp_path: Path
) -> None:
    def body(data: Path, params: Params, inputs: dict[str, Path]) -> Result:
        assert not inputs["dims"].is_relative_to(data)
        assert (inputs["dims"] / "shops" / "a").read_bytes() == b"shop"
        (inputs["dims"] / "mine").write_text("3")
        assert [path.name for path in data.iterdir()] == ["a"]
        return Result()

    job = with_inputs(world.job(), body=body)
    delivery = world.deliver(payload(world))
    workspaces = LocalWorkspaces(tmp_path / "root", Engine(world.lake.objects, threads=3))
    execution = Execution(delivery.claim, "exec-local")
    completed(run_attempt(job, execution, delivery.payload, world.ports(workspaces)))
    assert list((tmp_path / "root").iterdir()) == []
    assert world.head.id == world.ref
    downloads = [it for it in world.events if (it.action, it.phase) == ("phase_ended", "download")]
    assert downloads[0].details["objects"] == 2
