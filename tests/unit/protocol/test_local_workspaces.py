"""The life cycle with real folders: local workspaces over the in-memory lake."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perago.errors import BackendUnavailableError, ProjectionError
from perago.lakefs.fence import ACTION_PATH
from perago.protocol.identity import Execution
from perago.protocol.job import Job, WorkspaceUse
from perago.protocol.outcome import Outcome
from perago.protocol.run import run_attempt
from perago.testing import fails
from perago.testing.repository import StoredObject
from perago.transfer.engine import Engine
from perago.transfer.workspaces import LocalWorkspaces
from support.memory_world import (
    REPOSITORY,
    InMemoryWorld,
    Params,
    Result,
    completed,
    failed,
    nothing,
    silent,
)

Run = Callable[..., Outcome]


@pytest.fixture
def run(world: InMemoryWorld, tmp_path: Path) -> Run:
    def run_body(body: Callable[[Path], object], prefix: str = "data") -> Outcome:
        def call(data: Path, _: Params) -> Result:
            body(data)
            return Result()

        job = Job(
            "task",
            Params,
            Result,
            call,
            WorkspaceUse(prefix, False, silent(nothing), silent(nothing)),
        )
        delivery = world.deliver()
        workspaces = LocalWorkspaces(tmp_path / "root", Engine(world.lake.objects, threads=3))
        execution = Execution(delivery.claim, "exec-local")
        outcome = run_attempt(job, execution, delivery.payload, world.ports(workspaces))
        assert list((tmp_path / "root").iterdir()) == []
        return outcome

    return run_body


def test_files_written_changed_and_removed_are_published(world: InMemoryWorld, run: Run) -> None:
    world.ref = world.commit({"data/b": b"2", "data/sub/c": b"3"}).id

    def body(data: Path) -> None:
        (data / "a").write_bytes(b"changed")
        (data / "b").unlink()
        (data / "new" / "deep").mkdir(parents=True)
        (data / "new" / "deep" / "d").write_bytes(b"4")

    completed(run(body))
    assert world.contents() == {
        "data/a": b"changed",
        "data/new/deep/d": b"4",
        "data/sub/c": b"3",
        "other/x": b"x",
    }


def test_a_body_that_rewrites_the_same_bytes_changes_nothing(
    world: InMemoryWorld, run: Run
) -> None:
    completed(run(lambda data: (data / "a").write_bytes(b"1")))
    assert world.head.id == world.ref
    assert "lake.create_branch" not in world.faults.calls


def test_a_changed_object_keeps_its_content_type_and_metadata(
    world: InMemoryWorld, run: Run
) -> None:
    repo = world.lake.repository(REPOSITORY)
    described = StoredObject(b"1", "text/csv", (("owner", "ann"),))
    repo.branch("main").uncommitted["data/t.csv"] = described
    world.ref = world.commit({}).id
    completed(run(lambda data: (data / "t.csv").write_bytes(b"2")))
    assert repo.visible("main")["data/t.csv"] == StoredObject(
        b"2", described.content_type, described.metadata
    )


def test_directory_markers_survive_while_their_folder_does(world: InMemoryWorld, run: Run) -> None:
    world.ref = world.commit({"data/kept/": b"", "data/gone/": b""}).id
    completed(run(lambda data: (data / "gone").rmdir()))
    assert "data/kept/" in world.contents()
    assert "data/gone/" not in world.contents()


def test_a_symlink_is_refused_by_its_path(world: InMemoryWorld, run: Run) -> None:
    reason = failed(run(lambda data: (data / "link").symlink_to("a")), ProjectionError)
    assert reason.endswith("workspace publication does not support symlinks: link")
    assert world.head.id == world.ref


def test_a_pipe_is_refused(world: InMemoryWorld, run: Run) -> None:
    failed(run(lambda data: os.mkfifo(data / "pipe")), ProjectionError)
    assert world.head.id == world.ref


def test_nothing_is_published_from_a_folder_that_is_not_ours(
    world: InMemoryWorld, run: Run
) -> None:
    def body(data: Path) -> None:
        data.rename(data.with_name("moved"))
        data.mkdir()

    failed(run(body), ProjectionError)
    assert world.contents() == {"data/a": b"1", "other/x": b"x"}


def test_actions_are_no_part_of_a_whole_repository(world: InMemoryWorld, run: Run) -> None:
    world.ref = world.commit({ACTION_PATH: b"hook"}).id
    seen: list[str] = []

    def body(data: Path) -> None:
        seen.extend(sorted(path.name for path in data.iterdir()))
        (data / "new").write_bytes(b"1")

    completed(run(body, ""))
    assert seen == ["data", "other"]
    assert world.contents()[ACTION_PATH] == b"hook"


def test_a_body_that_writes_actions_fails(world: InMemoryWorld, run: Run) -> None:
    def body(data: Path) -> None:
        (data / "_lakefs_actions").mkdir()
        (data / "_lakefs_actions" / "mine.yaml").write_bytes(b"on:")

    failed(run(body, ""), ProjectionError)
    assert world.head.id == world.ref


def test_keys_that_cannot_be_files_fail_the_download_by_name(
    world: InMemoryWorld, run: Run
) -> None:
    world.ref = world.commit({"data/../up": b"1", "data/a/b": b"2", "data/x//y": b"3"}).id
    reason = failed(run(nothing), ProjectionError)
    for key in ("data/../up", "data/a/b", "data/x//y"):
        assert key in reason


def test_an_upload_that_fails_half_way_leaves_neither_branch_nor_folder(
    world: InMemoryWorld, run: Run
) -> None:
    world.faults.inject("objects.write", fails(BackendUnavailableError("down")), skip=1)

    def body(data: Path) -> None:
        for number in range(4):
            (data / f"n{number}").write_bytes(b"1")

    failed(run(body), BackendUnavailableError)
    assert world.staging_branches == []
    assert world.head.id == world.ref
