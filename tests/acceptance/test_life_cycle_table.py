"""Every row of the life cycle's failure table (protocol, section 4) on real servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from perago import GuardrailViolation, TaskFailed, TaskTerminalError
from perago.protocol.outcome import Completed, Failed
from perago.worker.report import Reported
from support.real_world import (
    SEED,
    Interfering,
    Params,
    RealWorld,
    Result,
    write_new,
    write_nothing,
)

pytestmark = pytest.mark.servers

FAILED, TERMINAL = "FAILED", "FAILED_WITH_TERMINAL_ERROR"


def violate(_: Path, _warn: Callable[[str], None]) -> None:
    raise GuardrailViolation("not as agreed")


def break_down(_: Path, _warn: Callable[[str], None]) -> None:
    raise ConnectionError("the guardrail's own outage")


def raising(error: BaseException) -> Callable[[Path, Params], Any]:
    def body(workspace: Path, params: Params) -> Result:
        write_new(workspace, params)
        raise error

    return body


def returning(value: Any) -> Callable[[Path, Params], Any]:
    def body(workspace: Path, params: Params) -> Any:
        write_new(workspace, params)
        return value

    return body


def make_link(workspace: Path, params: Params) -> Result:
    (workspace / "sub" / "link").symlink_to("/etc/hostname")
    return Result()


def write_actions(workspace: Path, params: Params) -> Result:
    (workspace / "_lakefs_actions").mkdir()
    (workspace / "_lakefs_actions" / "mine.yaml").write_text("on: {}")
    return Result()


def remove_workspace(workspace: Path, params: Params) -> Result:
    workspace.rename(workspace.parent / "elsewhere")
    workspace.mkdir()
    return Result()


@dataclass(frozen=True)
class Row:
    """A way to fail, and how Conductor hears of it."""

    name: str
    status: str
    reason: str
    job: dict[str, Any]
    payload: Callable[[RealWorld], dict[str, Any]] = lambda world: {
        "workspace": world.workspace(),
        "params": {},
    }


def given(**changes: Any) -> Callable[[RealWorld], dict[str, Any]]:
    return lambda world: {"workspace": world.workspace(), "params": {}, **changes}


def at(**changes: str) -> Callable[[RealWorld], dict[str, Any]]:
    return lambda world: {"workspace": world.workspace(**changes), "params": {}}


ROWS = [
    Row("input with an unknown key", FAILED, "InputError: ", {}, given(extra=1)),
    Row("params that do not fit", FAILED, "InputError: params", {}, given(params={"text": []})),
    Row("ref_type is no commit", FAILED, "InputError: workspace", {}, at(ref_type="branch")),
    Row("ref is a branch", FAILED, "InputError: workspace", {}, at(ref="main")),
    Row("ref does not exist", FAILED, "InputError: workspace: no commit", {}, at(ref="0" * 64)),
    Row("unknown repository", FAILED, "InputError: ", {}, at(repository="no-such-repo")),
    Row("pre guardrail violated", TERMINAL, "PreGuardrailViolation: not as", {"pre": violate}),
    Row("pre guardrail breaks down", FAILED, "ConnectionError: ", {"pre": break_down}),
    Row("body raises", FAILED, "KeyError: 'missing'", {"body": raising(KeyError("missing"))}),
    Row("body raises TaskFailed", FAILED, "TaskFailed: no", {"body": raising(TaskFailed("no"))}),
    Row(
        "body raises TaskTerminalError",
        TERMINAL,
        "TaskTerminalError: never",
        {"body": raising(TaskTerminalError("never"))},
    ),
    Row("body exits", FAILED, "BodyError: ", {"body": raising(SystemExit(3))}),
    Row("result of another kind", FAILED, "ResultError: ", {"body": returning(7)}),
    Row("output too large", FAILED, "ResultError: ", {"body": returning(Result(note="x" * 4000))}),
    Row("post guardrail violated", FAILED, "PostGuardrailViolation: not", {"post": violate}),
    Row("post guardrail breaks down", FAILED, "ConnectionError: ", {"post": break_down}),
    Row(
        "symlink in the workspace",
        FAILED,
        "ProjectionError: workspace publication does not support symlinks: sub/link",
        {"body": make_link},
    ),
    Row(
        "body writes LakeFS actions",
        FAILED,
        "ProjectionError: ",
        {"body": write_actions, "prefix": ""},
    ),
    Row("body replaces its folder", FAILED, "ProjectionError: ", {"body": remove_workspace}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_failing_step_reaches_conductor_and_nothing_else(world: RealWorld, row: Row) -> None:
    world.policy = replace(world.policy, max_output_bytes=2_000)
    workflow = world.start(row.payload(world))
    outcome, delivered = world.attempt(world.job(**{"body": write_new, **row.job}))
    assert isinstance(outcome, Failed)
    assert delivered is Reported.POSTED
    task = world.tasks(workflow)[0]
    assert task["status"] == row.status
    assert task["reasonForIncompletion"].startswith(row.reason)
    assert not task.get("outputData")
    world.assert_untouched()
    world.assert_tidy()


@pytest.mark.parametrize("ref", ["0" * 64, "main", "short"])
def test_a_wrong_ref_is_noticed_before_the_body_runs(world: RealWorld, ref: str) -> None:
    """A wrong ref costs no run of the body."""
    ran: list[bool] = []

    def body(workspace: Path, params: Params) -> Result:
        ran.append(True)
        return Result()

    given = world.ref[:12] if ref == "short" else ref
    world.start(at(ref=given)(world))
    outcome, _ = world.attempt(world.job(body))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("InputError: workspace")
    assert not ran


def test_the_attempt_directory_cannot_be_made(world: RealWorld) -> None:
    world.root.write_text("a file where the root should be")
    workflow = world.start()
    outcome, _ = world.attempt(world.job())
    assert isinstance(outcome, Failed)
    assert world.tasks(workflow)[0]["status"] == FAILED
    world.root.unlink()
    world.assert_untouched()
    world.assert_tidy()


def test_a_key_that_cannot_be_a_file_fails_the_download(world: RealWorld) -> None:
    world.ref = world.commit("main", {"data/a//b": "1", "data/../c": "2", "data/a.txt/d": "3"})
    workflow = world.start()
    outcome, _ = world.attempt(world.job())
    assert isinstance(outcome, Failed)
    for key in ("data/a//b", "data/../c", "data/a.txt/d"):
        assert key in outcome.reason
    assert world.tasks(workflow)[0]["status"] == FAILED
    assert world.history()[0] == world.ref
    world.assert_tidy()


def test_a_workflow_terminated_during_the_body_stops_at_the_first_fence(world: RealWorld) -> None:
    workflow = world.start()

    def terminate(workspace: Path, params: Params) -> Result:
        world.operate("DELETE", f"/workflow/{workflow}")
        return write_new(workspace, params)

    outcome, delivered = world.attempt(world.job(terminate))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("StaleAttemptError: ")
    assert delivered is Reported.STALE
    assert world.tasks(workflow)[0]["status"] == "CANCELED"
    assert "stage" not in {event.phase for event in world.events}
    world.assert_untouched()
    world.assert_tidy()


def test_a_workflow_terminated_during_staging_stops_at_the_second_fence(world: RealWorld) -> None:
    workflow = world.start()
    lake = Interfering(
        world.control, "commit", after=lambda: world.operate("DELETE", f"/workflow/{workflow}")
    )
    outcome, delivered = world.attempt(world.job(), lake=lake)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("StaleAttemptError: ")
    assert delivered is Reported.STALE
    assert "publish" not in {event.phase for event in world.events}
    world.assert_untouched()
    world.assert_tidy()


def test_staging_that_fails_half_way_leaves_no_branch(world: RealWorld) -> None:
    """A branch that nobody needs any more is deleted also when staging fails half-way."""

    def fail() -> None:
        raise OSError("the disk went away")

    workflow = world.start()
    outcome, _ = world.attempt(world.job(), lake=Interfering(world.control, "commit", before=fail))
    assert isinstance(outcome, Failed)
    assert world.tasks(workflow)[0]["status"] == FAILED
    world.assert_untouched()
    world.assert_tidy()


def test_a_staging_branch_that_exists_already_fails_the_attempt(world: RealWorld) -> None:
    workflow = world.start()
    delivery = world.claim()
    from perago.protocol.identity import Execution
    from perago.protocol.workspace import StagingBranch

    name = Execution(delivery.claim, "fixed").staging_branch_name
    world.control.create_branch(StagingBranch(world.repository, name), world.ref)
    outcome = world.run(world.job(), delivery, execution_id="fixed")
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("ConflictError: ")
    world.report(delivery, outcome)
    assert world.tasks(workflow)[0]["status"] == FAILED
    world.assert_untouched()


def test_a_failure_to_clean_up_keeps_the_result(world: RealWorld) -> None:
    from perago.errors import BackendUnavailableError

    def outage() -> None:
        raise BackendUnavailableError("LakeFS is away")

    workflow = world.start()
    lake = Interfering(world.control, "delete_branch", before=outage)
    outcome, delivered = world.attempt(world.job(), lake=lake)
    assert isinstance(outcome, Completed)
    assert delivered is Reported.POSTED
    assert world.tasks(workflow)[0]["status"] == "COMPLETED"
    messages = [event.details.get("message") for event in world.events]
    assert "failed to clean staging workspace" in messages
    assert len(world.branches()) == 2


def test_a_read_only_task_completes_with_its_input_whatever_the_target_does(
    world: RealWorld,
) -> None:
    workflow = world.start({"workspace": world.workspace(branch="gone"), "params": {}})
    outcome, _ = world.attempt(world.job(read_only=True))
    assert isinstance(outcome, Completed)
    task = world.tasks(workflow)[0]
    assert task["status"] == "COMPLETED"
    assert task["outputData"]["workspace"] == world.workspace(branch="gone")
    phases = {event.phase for event in world.events}
    assert not phases & {"first_fence", "diff", "stage", "publish"}
    world.assert_untouched()
    world.assert_tidy()


def test_the_output_repeats_the_spelling_of_the_input(world: RealWorld) -> None:
    given = world.workspace()
    given["refType"] = given.pop("ref_type")
    workflow = world.start({"workspace": given, "params": {}})
    world.attempt(world.job(write_nothing))
    assert world.tasks(workflow)[0]["outputData"]["workspace"] == given


def test_a_marker_object_at_the_root_of_the_projection_is_left_alone(world: RealWorld) -> None:
    world.ref = world.commit("main", {"data/.perago-attempt.json": "{}"})
    seen: list[str] = []

    def look(workspace: Path, params: Params) -> Result:
        seen.extend(path.name for path in workspace.iterdir())
        (workspace / "a.txt").unlink()
        return Result()

    world.start()
    outcome, _ = world.attempt(world.job(look))
    assert isinstance(outcome, Completed)
    assert sorted(seen) == ["a.txt", "sub"]
    expected = {**SEED, "data/.perago-attempt.json": "{}"}
    del expected["data/a.txt"]
    assert world.contents() == expected
    world.assert_tidy()
