"""Section 9: the order of a Spark task's steps, and what each failure gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from perago.errors import (
    BackendUnavailableError,
    ConfigurationError,
    FailedWriteError,
    GuardrailViolation,
    InputError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    ProjectionError,
    PublishFenceError,
    ResultError,
    SparkServerDiedError,
    TaskTerminalError,
    UnfinishedOperationError,
)
from perago.protocol.identity import Execution
from perago.protocol.job import Policy, StoragePorts
from perago.protocol.run import run_attempt
from perago.testing import fails, preceded_by
from perago.testing.spark import InMemorySparkWorkspace
from support.memory_world import InMemoryWorld, assert_untouched, completed, failed, raising

Body = Callable[[InMemorySparkWorkspace], Any]


def write_b(workspace: InMemorySparkWorkspace) -> None:
    workspace.write("b", b"2")


def test_a_writable_attempt_walks_the_steps_in_order(world: InMemoryWorld) -> None:
    completed(world.run(world.spark_job(write_b)))
    assert world.phases() == [
        "validate",
        "session",
        "pre_guardrails",
        "first_fence",
        "withdraw",
        "branch",
        "body",
        "end_operations",
        "check_result",
        "diff",
        "commit",
        "check_commit",
        "post_guardrails",
        "second_fence",
        "publish",
    ]
    assert world.contents() == {"data/a": b"1", "data/b": b"2", "other/x": b"x"}
    assert world.staging_branches == []


def test_a_read_only_attempt_has_no_output_and_touches_nothing(world: InMemoryWorld) -> None:
    world.commit({"data/a": b"moved on"})
    found: list[dict[str, bytes]] = []
    output = completed(
        world.run(world.spark_job(lambda space: found.append(space.files()), read_only=True))
    )
    assert output["workspace"]["ref"] == world.ref
    assert found == [{"a": b"1"}]
    failed(world.run(world.spark_job(write_b, read_only=True)), RuntimeError)
    calls = set(world.faults.calls) - {"attempts.poll", "objects.list", "objects.read"}
    assert calls == {"lake.get_commit", "spark.open", "spark.end_operations"}


def test_guardrails_look_at_the_input_first_and_at_the_staged_commit_then(
    world: InMemoryWorld,
) -> None:
    seen: list[tuple[str, dict[str, bytes], bool]] = []

    def note(space: InMemorySparkWorkspace) -> None:
        seen.append((space.ref, space.files(), space.staging is None))

    completed(world.run(world.spark_job(write_b, pre=note, post=note)))
    (first, before, _), (second, after, _) = seen
    assert first == world.ref
    assert second == world.head.metadata["perago.staging_commit"]
    assert (before, after) == ({"a": b"1"}, {"a": b"1", "b": b"2"})
    assert all(without_output for _, _, without_output in seen)


@pytest.mark.parametrize("read_only", [False, True])
def test_without_changes_post_guardrails_look_at_the_input(
    world: InMemoryWorld, read_only: bool
) -> None:
    seen: list[str] = []
    job = world.spark_job(read_only=read_only, post=lambda space: seen.append(space.ref))
    completed(world.run(job))
    assert seen == [world.ref]


def test_a_pre_violation_is_terminal_and_comes_before_fence_and_branch(
    world: InMemoryWorld,
) -> None:
    job = world.spark_job(write_b, pre=raising(GuardrailViolation("no")))
    failed(world.run(job), PreGuardrailViolation, "FAILED_WITH_TERMINAL_ERROR")
    assert not {"attempts.read", "lake.create_branch"} & set(world.faults.calls)
    assert_untouched(world)


@pytest.mark.parametrize("body", [write_b, lambda _: None], ids=["changed", "unchanged"])
def test_a_post_violation_fails_and_publishes_nothing(world: InMemoryWorld, body: Body) -> None:
    job = world.spark_job(body, post=raising(GuardrailViolation("no")))
    failed(world.run(job), PostGuardrailViolation)
    assert_untouched(world)


def test_a_result_that_does_not_fit_fails_before_anything_is_committed(
    world: InMemoryWorld,
) -> None:
    def body(space: InMemorySparkWorkspace) -> int:
        space.write("b")
        return 7

    failed(world.run(world.spark_job(body)), ResultError)
    world.policy = Policy(max_output_bytes=10)
    failed(world.run(world.spark_job(write_b)), ResultError)
    assert "lake.commit" not in world.faults.calls
    assert_untouched(world)


def test_a_body_that_fails_leaves_nothing_running_and_no_branch(world: InMemoryWorld) -> None:
    late: list[str] = []

    def body(space: InMemorySparkWorkspace) -> None:
        space.write("b")
        space.leave_running(lambda: late.append("landed"))
        raise TaskTerminalError("no use")

    failed(world.run(world.spark_job(body)), TaskTerminalError, "FAILED_WITH_TERMINAL_ERROR")
    calls = world.faults.calls
    assert calls.index("spark.end_operations") < calls.index("lake.delete_branch")
    world.spark.opened[0].finish()
    assert late == []
    assert_untouched(world)


def test_the_bodys_own_error_is_reported_also_when_sparks_operations_cannot_be_ended(
    world: InMemoryWorld,
) -> None:
    world.faults.inject("spark.end_operations", fails(BackendUnavailableError("down")))
    failed(world.run(world.spark_job(raising(KeyError("mine")))), KeyError)


@pytest.mark.parametrize(
    ("raised", "reported"),
    [(KeyError("Spark's"), SparkServerDiedError), (TaskTerminalError("mine"), TaskTerminalError)],
)
def test_the_death_of_spark_s_server_is_the_reason_unless_the_author_gives_one(
    world: InMemoryWorld, raised: Exception, reported: type[Exception]
) -> None:
    died = SparkServerDiedError("nothing listens")
    world.faults.inject("spark.end_operations", fails(died))
    outcome = world.run(world.spark_job(raising(raised)))
    terminal = reported is TaskTerminalError
    failed(outcome, reported, "FAILED_WITH_TERMINAL_ERROR" if terminal else "FAILED")
    assert_untouched(world)


@pytest.mark.parametrize("read_only", [False, True])
def test_an_operation_left_running_is_interrupted_and_fails_the_attempt(
    world: InMemoryWorld, read_only: bool
) -> None:
    late: list[str] = []

    def body(space: InMemorySparkWorkspace) -> None:
        if not read_only:
            space.write("b", b"2")
        space.leave_running(lambda: late.append("landed"))

    job = world.spark_job(body, read_only=read_only)
    failed(world.run(job), UnfinishedOperationError)
    world.spark.opened[0].finish()
    assert late == []
    assert "lake.commit" not in world.faults.calls
    [ended] = [event for event in world.events if event.details.get("interrupted")]
    assert (ended.action, ended.phase) == ("phase_failed", "end_operations")
    assert_untouched(world)


def test_a_failed_write_that_the_body_swallowed_fails_the_attempt(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.fail_to_write("a")
        space.write("b", b"2")

    reason = failed(world.run(world.spark_job(body)), FailedWriteError)
    assert "1 failed writes" in reason
    assert "'a'" in reason
    assert "lake.commit" not in world.faults.calls
    assert_untouched(world)


def test_an_operation_left_running_is_named_before_the_write_that_it_failed(
    world: InMemoryWorld,
) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.fail_to_write("a")
        space.leave_running(lambda: None)

    failed(world.run(world.spark_job(body)), UnfinishedOperationError)


def test_the_logs_of_streams_are_never_published(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.write("t/part-0", b"2")
        space.write("t/_spark_metadata/0", b"2")
        for name in ("metadata", "offsets/0", "commits/0", "sources/0/0"):
            space.write(f"positions/{name}", b"2")

    reason = failed(world.run(world.spark_job(body)), ProjectionError)
    assert "2 changes cannot be published" in reason
    assert "'data/t/_spark_metadata/0'" in reason
    assert "'data/positions/offsets/0'" in reason
    assert_untouched(world)


def test_work_that_cannot_be_ended_fails_the_attempt(world: InMemoryWorld) -> None:
    world.faults.inject("spark.end_operations", fails(BackendUnavailableError("still running")))
    failed(world.run(world.spark_job(write_b)), BackendUnavailableError)
    assert_untouched(world)


def test_leftovers_are_removed_and_the_rest_is_published(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.write("t/part-0", b"2")
        space.write("t/_temporary/0/part-0", b"2")
        space.write("t/__magic_job-job_1_1/00/x.pending", b"2")
        space.write("t/_delta_log/0.json", b"2")
        space.write_key("data/")

    completed(world.run(world.spark_job(body)))
    assert sorted(world.contents()) == ["data/a", "data/t/_delta_log/0.json", "data/t/part-0",
                                        "other/x"]  # fmt: skip


def test_leftovers_that_were_in_the_input_stay(world: InMemoryWorld) -> None:
    world.ref = world.commit({"data/_temporary/0/x": b"old", "data/t/": b""}).id
    completed(world.run(world.spark_job(write_b)))
    assert {"data/_temporary/0/x", "data/t/"} < set(world.contents())


def test_more_leftovers_than_one_call_takes_are_removed(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        for number in range(1001):
            space.write(f"_temporary/{number}", b"2")

    output = completed(world.run(world.spark_job(body)))
    assert output["workspace"]["ref"] == world.ref
    assert world.faults.calls.count("objects.delete") == 2


def test_nothing_but_leftovers_is_no_change(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.write("t/")
        space.write("t/_temporary/x", b"2")

    output = completed(world.run(world.spark_job(body)))
    assert output["workspace"]["ref"] == world.ref
    assert "lake.commit" not in world.faults.calls
    assert_untouched(world)


def test_what_appears_between_the_survey_and_the_commit_is_judged_too(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.write("b", b"2")
        late = preceded_by(lambda: space.write("_temporary/late", b"3"))
        world.faults.inject("lake.commit", late)

    assert "Spark was still writing" in failed(world.run(world.spark_job(body)), ProjectionError)
    assert_untouched(world)


@pytest.mark.parametrize(
    "key", ["other/y", "other/x", "database/z", "top", "_lakefs_actions/mine.yaml", "elsewhere/"]
)
def test_a_write_outside_the_prefix_fails_and_names_the_key(world: InMemoryWorld, key: str) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        space.write("b", b"2")
        space.write_key(key, b"" if key.endswith("/") else b"mine")

    reason = failed(world.run(world.spark_job(body)), ProjectionError)
    assert repr(key) in reason
    assert_untouched(world)


def test_under_the_whole_repository_actions_are_still_refused(world: InMemoryWorld) -> None:
    job = world.spark_job(lambda space: space.write_key("_lakefs_actions/x", b"mine"), prefix="")
    assert "LakeFS actions" in failed(world.run(job), ProjectionError)
    assert_untouched(world)


def test_many_refused_changes_are_counted_and_not_all_listed(world: InMemoryWorld) -> None:
    def body(space: InMemorySparkWorkspace) -> None:
        for number in range(30):
            space.write_key(f"other/{number}", b"mine")

    outcome = world.run(world.spark_job(body))
    assert "30 changes cannot be published" in failed(outcome, ProjectionError)


def test_a_removed_file_is_removed(world: InMemoryWorld) -> None:
    completed(world.run(world.spark_job(lambda space: space.delete("a"))))
    assert world.contents() == {"other/x": b"x"}


def test_wrong_input_opens_no_session(world: InMemoryWorld) -> None:
    failed(world.run(world.spark_job(), world.deliver({"params": {}})), InputError)
    assert "spark.open" not in world.faults.calls


def test_a_session_that_cannot_be_opened_fails_the_attempt(world: InMemoryWorld) -> None:
    world.faults.inject("spark.open", fails(BackendUnavailableError("no Spark")))
    failed(world.run(world.spark_job(write_b)), BackendUnavailableError)
    assert_untouched(world)


def test_a_missing_hard_fence_fails_closed_before_the_body(world: InMemoryWorld) -> None:
    world.policy = Policy(publish_fence="hard")
    failed(world.run(world.spark_job(write_b)), PublishFenceError)
    assert "spark.open" not in world.faults.calls


def test_a_worker_without_spark_says_so(world: InMemoryWorld) -> None:
    delivery, ports = world.deliver(), world.ports()
    storage = StoragePorts(world.lake, world.workspaces)
    without = replace(ports, storage=storage)
    execution = Execution(delivery.claim, "e")
    outcome = run_attempt(world.spark_job(), execution, delivery.payload, without)
    failed(outcome, ConfigurationError)
