"""Which keys are a Spark task's result, which are removed, and which fail the attempt."""

from __future__ import annotations

import pytest

from perago.protocol.leftovers import Boundary
from perago.protocol.ports import Change

INSIDE = Boundary("audio/render")
WHOLE = Boundary("")
JOB = "3f8f2f0e-7a52-4c6b-9d0c-0f1d9c1f5a10"


@pytest.mark.parametrize(
    "key",
    [
        "audio/render/t/_temporary/0/task_1/part-0.parquet",
        "audio/render/_temporary/0/_SUCCESS",
        f"audio/render/t/__magic_job-{JOB}/job-{JOB}/tasks/a/__base/part-0.parquet.pending",
        "audio/render/t/__magic_job-job_20261116065500_0001/x.pendingset",
        f"audio/render/t/.spark-staging-{JOB}/day=1/part-0.parquet",
        "audio/render/t/_temporary/",
    ],
)
def test_what_a_committer_worked_with_is_a_leftover(key: str) -> None:
    change = Change(key, "added")
    assert INSIDE.is_leftover(change)
    assert WHOLE.is_leftover(change)


@pytest.mark.parametrize("key", ["audio/", "audio/render/", "audio/render/t/", "audio/render/t/u/"])
def test_a_new_folder_marker_in_the_workspace_or_above_it_is_a_leftover(key: str) -> None:
    assert INSIDE.is_leftover(Change(key, "added"))


@pytest.mark.parametrize(
    "change",
    [
        Change("audio/render/t/part-0.parquet", "added", 9),
        Change("audio/render/t/_SUCCESS", "added", 9),
        Change("audio/render/t/_delta_log/00000000000000000000.json", "added", 9),
        Change("audio/render/t/_delta_log/_temporary/x", "added"),
        Change("audio/render/t/_delta_log/", "added"),
        # Folders of an author that merely begin like a committer's.
        Change("audio/render/t/_temporary_results/x", "added", 9),
        Change("audio/render/t/__magic_job-notes/x", "added", 9),
        Change("audio/render/t/__magic/x", "added", 9),
        Change("audio/render/t/.spark-staging-area/x", "added", 9),
        # A file, not a folder: an author may call one what he likes.
        Change("audio/render/t/_temporary", "added", 9),
        # Not added by this execution, so not its leftovers.
        Change("audio/render/t/_temporary/0/x", "changed", 9),
        Change("audio/render/t/_temporary/0/x", "removed"),
        Change("audio/render/t/", "removed"),
        # Something with content is no marker, whatever its name ends with.
        Change("audio/render/t/", "added", 3),
        # Elsewhere nothing is removed: writing there is refused.
        Change("audio/_temporary/0/x", "added"),
        Change("audio/other/", "added"),
        Change("audio/render-archive/", "added"),
        Change("audio/render-archive/_temporary/x", "added"),
    ],
    ids=lambda change: f"{change.kind} {change.key}",
)
def test_nothing_else_is(change: Change) -> None:
    assert not INSIDE.is_leftover(change)


@pytest.mark.parametrize("kind", ["added", "changed", "removed"])
@pytest.mark.parametrize("key", ["other/x", "audio/x", "audio/render-archive/x", "audio/render"])
def test_any_change_outside_the_prefix_is_refused(key: str, kind: str) -> None:
    why = INSIDE.refusal(Change(key, kind))  # type: ignore[arg-type]
    assert why is not None
    assert "outside the workspace's prefix 'audio/render'" in why


@pytest.mark.parametrize("boundary", [INSIDE, WHOLE])
def test_lakefs_actions_are_refused_under_every_prefix(boundary: Boundary) -> None:
    why = boundary.refusal(Change("_lakefs_actions/mine.yaml", "added", 9))
    assert why == "a task must not write LakeFS actions"


def test_what_is_still_being_written_is_refused() -> None:
    change = Change("audio/render/t/_temporary/0/x", "added", 9)
    assert INSIDE.refusal(change) == "Spark was still writing"


@pytest.mark.parametrize("kind", ["added", "changed", "removed"])
@pytest.mark.parametrize("key", ["audio/render/x", "audio/render/t/_delta_log/0.json"])
def test_the_result_is_not_refused(key: str, kind: str) -> None:
    assert INSIDE.refusal(Change(key, kind)) is None  # type: ignore[arg-type]
    assert WHOLE.refusal(Change("anything", kind)) is None  # type: ignore[arg-type]


def kept(*names: str, kind: str = "added") -> list[str]:
    """The keys below the prefix that are refused."""
    changes = [Change(f"audio/render/{name}", kind, 9) for name in names]  # type: ignore[arg-type]
    return [change.key.removeprefix("audio/render/") for change, _ in INSIDE.refusals(changes)]


@pytest.mark.parametrize("kind", ["added", "changed"])
def test_the_log_of_a_streaming_sink_is_refused(kind: str) -> None:
    names = ["t/_spark_metadata/0", "t/_spark_metadata/9.compact", "t/part-0"]
    assert kept(*names, kind=kind) == names[:2]


@pytest.mark.parametrize("others", [["metadata"], ["commits/0"], ["commits/0", "metadata"]])
@pytest.mark.parametrize("folder", ["", "c/", "c/d/"])
def test_a_checkpoint_is_refused_by_its_files_together(folder: str, others: list[str]) -> None:
    names = [f"{folder}{name}" for name in [*others, "offsets/0", "offsets/1"]]
    assert kept(*names) == [f"{folder}offsets/1"]


@pytest.mark.parametrize(
    "names",
    [
        ["metadata"],
        ["offsets/0"],
        ["a/offsets/0", "b/metadata", "metadata"],
        ["metadata", "offsets/first"],
        ["metadata", "offsets"],
        ["_spark_metadata"],
    ],
)
def test_an_authors_files_of_such_names_are_not(names: list[str]) -> None:
    assert kept(*names) == []


def test_a_stream_that_was_published_before_can_be_removed() -> None:
    assert kept("t/_spark_metadata/0", "metadata", "offsets/0", "commits/0", kind="removed") == []
