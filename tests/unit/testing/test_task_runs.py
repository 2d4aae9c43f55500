"""The authors' test kit: a task on files, with everything that a worker checks, and no server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import InputSpec, SparkWorkspace, WorkspaceSpec, require_file, task
from perago.testing import Diff, TaskWorkspace, run_task


class Params(BaseModel):
    """What to write."""

    text: str = "new"
    fail: bool = False


class Result(BaseModel):
    """How much was written."""

    length: int


SPEC = WorkspaceSpec(prefix="data", pre=[require_file("in.txt")], post=[require_file("out.txt")])


@task(name="rewrite", owner_email="tests@example.com", workspace=SPEC)
def rewrite(workspace: Path, params: Params) -> Result:
    """Change, add and remove one file each."""
    (workspace / "in.txt").write_text(params.text)
    (workspace / "old.txt").unlink(missing_ok=True)
    if params.fail:
        raise KeyError("a day")
    (workspace / "out.txt").write_text("out")
    return Result(length=len(params.text))


@task(name="look", owner_email="tests@example.com", workspace=WorkspaceSpec(read_only=True))
def look(workspace: Path, params: Params) -> Result:
    """Write into a folder from which nothing is published."""
    (workspace / "scratch.txt").write_text("x")
    return Result(length=len(list(workspace.iterdir())))


@task(name="add", owner_email="tests@example.com")
def add(params: Params) -> Result:
    """Have no workspace."""
    return Result(length=len(params.text))


@task(name="job", owner_email="tests@example.com")
def job(workspace: SparkWorkspace, params: Params) -> Result:
    """Be a Spark task."""
    return Result(length=0)


@task(
    name="join",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(inputs={"dims": InputSpec("dimensions")}),
)
def join(workspace: Path, params: Params, inputs: Mapping[str, Path]) -> Result:
    """Write what an input says, and into the input."""
    text = (inputs["dims"] / "name.txt").read_text()
    (workspace / "name.txt").write_text(text)
    (inputs["dims"] / "mine.txt").write_text("x")
    return Result(length=len(text))


FILES: dict[str, str | bytes] = {"in.txt": "old", "old.txt": b"bytes", "deep/kept.txt": "same"}


def test_a_run_has_its_result_its_files_their_difference_and_its_events() -> None:
    run = run_task(rewrite, FILES, Params(text="four"))
    assert run.result == Result(length=4)
    assert run.failure is None
    assert run.diff == Diff(added=("out.txt",), changed=("in.txt",), removed=("old.txt",))
    assert run.files == {"in.txt": b"four", "out.txt": b"out", "deep/kept.txt": b"same"}
    phases = [event.phase for event in run.events if event.action == "phase_ended"]
    assert phases == [
        "validate", "pre_guardrails", "body", "check_result", "post_guardrails", "check_files"
    ]  # fmt: skip


def test_a_folder_that_is_given_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("old")
    run = run_task(rewrite, tmp_path, {"text": "new"})
    assert run.diff.changed == ("in.txt",)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert (tmp_path / "in.txt").read_text() == "old"


def test_what_goes_wrong_is_in_the_run_and_raised_by_its_result() -> None:
    run = run_task(rewrite, FILES, {"fail": True})
    assert run.failure is not None
    assert "KeyError" in run.failure.reason
    # As the body left them.
    assert run.diff == Diff(changed=("in.txt",), removed=("old.txt",))
    with pytest.raises(AssertionError, match=r"KeyError(.|\n)*test_task_runs.py"):
        _ = run.result


@pytest.mark.parametrize(
    ("files", "params", "code"),
    [
        ({}, {}, "PRG-211"),
        (FILES, {"txt": "misspelt"}, "PRG-201"),
        (FILES, {"text": 1}, "PRG-201"),
    ],
)
def test_what_a_worker_would_refuse_is_refused(
    files: dict[str, str | bytes], params: dict[str, object], code: str
) -> None:
    failure = run_task(rewrite, files, params).failure
    assert failure is not None
    assert failure.code == code


def test_inputs_are_folders_or_files_and_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "name.txt").write_text("Ada")
    assert run_task(join, {}, inputs={"dims": {"name.txt": "Eve"}}).files == {"name.txt": b"Eve"}
    assert run_task(join, {}, inputs={"dims": tmp_path}).diff == Diff(added=("name.txt",))
    assert [path.name for path in tmp_path.iterdir()] == ["name.txt"]


@pytest.mark.parametrize("inputs", [None, {}, {"dims": {}, "more": {}}])
def test_inputs_that_are_not_those_of_the_task_say_so(inputs: Any) -> None:
    with pytest.raises(ValueError, match=r"has the inputs \['dims'\], not"):
        run_task(join, {}, inputs=inputs)


def test_a_task_without_a_workspace_needs_none() -> None:
    run = run_task(add, params={"text": "abc"})
    assert run.result.length == 3
    assert not run.diff


def test_runs_on_a_workspace_build_on_each_other_and_failures_leave_no_trace(
    tmp_path: Path,
) -> None:
    space = TaskWorkspace(tmp_path / "space")
    space.put({"in.txt": "old"})
    assert space.run(rewrite, {"fail": True}).failure is not None
    assert space.files == {"in.txt": b"old"}
    assert space.run(look).result.length == 2
    assert space.files == {"in.txt": b"old"}
    assert space.run(rewrite).result.length == 3
    assert space.files == {"in.txt": b"new", "out.txt": b"out"}
    assert space.run(rewrite, {"text": "more"}).diff == Diff(changed=("in.txt",))


def test_what_is_no_task_and_a_spark_task_without_spark_say_so() -> None:
    with pytest.raises(TypeError, match="decorate it with @task"):
        run_task(len, {})
    with pytest.raises(ValueError, match="give spark="):
        run_task(job, {})


class Told(BaseModel):
    """What a task was told of the changes."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    since: str | None


class Since(BaseModel):
    """What to compare with, and what to write."""

    since: str | None = None
    write: bool = True


@task(name="tell", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="data"))
def tell(workspace: SparkWorkspace, params: Since) -> Told:
    """Write a file, without Spark."""
    found = workspace.changes(since=params.since)
    if params.write:
        Path(workspace.output("told").removeprefix("file://")).write_text("told")
    return Told(added=found.added, changed=found.changed, removed=found.removed, since=found.since)


def test_a_spark_task_is_told_what_changed_since_its_own_last_run(
    tmp_path: Path,
) -> None:
    space, session = TaskWorkspace(tmp_path / "space"), object()
    space.put({"a": "1", "b": "1"})
    first = space.run(tell, {"write": False}, spark=session).result
    assert (first.added, first.since) == (("a", "b"), None)
    # That run changed nothing, so it would not have been published.
    assert space.run(tell, spark=session).result.added == ("a", "b")
    none = space.run(tell, {"write": False}, spark=session).result
    assert (none.added, none.changed, none.removed) == ((), (), ())
    space.put({"a": "2", "c": "1"})
    (space.folder / "b").unlink()
    told = space.run(tell, {"write": False}, spark=session).result
    assert (told.added, told.changed, told.removed) == (("c",), ("a",), ("b",))
    assert told.since is not None
    failure = space.run(tell, {"since": "main"}, spark=session).failure
    assert failure is not None
    assert "a run on folders has no commits" in failure.reason
