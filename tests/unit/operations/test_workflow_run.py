"""What a run is started with, what is told while it is followed, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago import errors
from perago.conductor.inspection import LogEntry
from perago.conductor.workflows import StepAttempt, WorkflowRun
from perago.errors import (
    BackendUnavailableError,
    ConfigurationError,
    DefinitionError,
    LostReplyError,
    NotFoundError,
    UnknownOutcomeError,
)
from perago.operations import workflow_follow, workflow_run
from perago.operations.workflow_file import WorkflowFile, read_workflow, worker_tasks
from perago.testing import InMemoryLake, ManualClock
from support import workflows

WORKSPACE = {"repository": "repo", "branch": "main", "ref_type": "commit", "ref": "a" * 64}


def workflow(*inputs: str, **more: Any) -> WorkflowFile:
    params = {name: f"${{workflow.input.{name}}}" for name in inputs}
    steps = [workflows.simple_task("task", params)]
    return WorkflowFile("wf", 1, {"name": "wf", "tasks": steps, **more})


# The file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON: Expecting property name"),
        ("[]", "a workflow definition is a JSON object, not list"),
        ('{"tasks": [{}]}', 'needs "name"'),
        ('{"name": "wf", "tasks": []}', 'needs "tasks"'),
        ('{"name": "wf", "tasks": [{}], "version": "1"}', '"version" must be a whole number'),
    ],
)
def test_a_file_that_is_no_workflow_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "workflow.json"
    file.write_text(text)
    with pytest.raises(DefinitionError) as raised:
        read_workflow(file)
    assert says in str(raised.value)
    assert "perago workflow check" in raised.value.hint


def test_the_tasks_of_workers_are_found_at_any_depth() -> None:
    step = workflows.step
    tasks = [
        step("a"),
        workflows.fork([step("b")], [step("a")]),
        workflows.switch({"x": [step("c")]}),
        workflows.loop(step("d")),
        step("h", "HTTP", name="http"),
    ]
    assert sorted(worker_tasks(tasks)) == ["a", "b", "c", "d"]


# The input


def test_the_pinned_workspace_becomes_part_of_the_input() -> None:
    full = workflow_run.pin_input(workflow("workspace", "day"), {"day": "x"}, WORKSPACE)
    assert full == {"workspace": WORKSPACE, "day": "x"}


def test_workspaces_without_a_ref_are_pinned_where_steps_take_them_and_nowhere_else() -> None:
    steps = [
        workflows.step(
            "join",
            inputParameters={
                "workspace": "${workflow.input.workspace}",
                "inputs": {"dims": "${workflow.input.inputs.dims}"},
                "params": "${workflow.input.params}",
            },
        ),
        workflows.step(
            "more",
            inputParameters={"inputs": "${workflow.input.all}", "workspace": "${join.output.w}"},
        ),
    ]
    defined = WorkflowFile("w", 1, {"name": "w", "tasks": steps})

    def pin(repository: str, branch: str | None) -> dict[str, str]:
        return {"repository": repository, "branch": branch or "trunk", "ref": "head"}

    given: dict[str, Any] = {
        "workspace": WORKSPACE,
        "inputs": {"dims": {"repository": "dims"}, "unused": {"repository": "kept"}},
        "all": {"a": {"repository": "a", "branch": "b"}, "odd": 5, "wrong": {"repository": 5}},
        "params": {"repository": "my own word"},
    }
    assert workflow_run.pin_refs(defined, given, pin) == {
        **given,
        "inputs": {
            "dims": {"repository": "dims", "branch": "trunk", "ref": "head"},
            "unused": {"repository": "kept"},
        },
        "all": {
            **given["all"],
            "a": {"repository": "a", "branch": "b", "ref": "head"},
        },
    }
    assert given["inputs"]["dims"] == {"repository": "dims"}


def test_a_missing_input_is_named_with_the_option_that_gives_it() -> None:
    with pytest.raises(ConfigurationError, match="needs the input workspace, day") as raised:
        workflow_run.pin_input(workflow("workspace", "day"), {}, None)
    assert raised.value.hint == "Give --repository R [--branch B] and --input '{\"day\": …}'."


def test_a_default_of_the_definition_is_an_input_too() -> None:
    defined = workflow("day", inputTemplate={"day": "today"})
    assert workflow_run.pin_input(defined, {}, None) == {}


def test_a_workspace_is_given_in_one_way_only() -> None:
    with pytest.raises(ConfigurationError, match="asks for another"):
        workflow_run.pin_input(workflow("workspace"), {"workspace": WORKSPACE}, WORKSPACE)


@pytest.fixture
def lake() -> InMemoryLake:
    lake = InMemoryLake()
    lake.create_repository("repo")
    return lake


def test_a_workspace_given_by_hand_is_looked_at_before_the_start(lake: InMemoryLake) -> None:
    old = lake.get_head("repo", "main").id
    given = {"workspace": {**WORKSPACE, "ref": old}}
    assert workflow_run.given_workspace_warning(lake, given) is None
    head = lake.write_and_commit("repo", "main", {"a": b"1"}).id
    warning = workflow_run.given_workspace_warning(lake, given)
    assert warning is not None
    assert (f"ref {old} is not HEAD" in warning, head in warning) == (True, True)
    assert "--repository" in warning


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ref": "main"}, ConfigurationError),
        ({"ref": "0" * 64}, NotFoundError),
        ({"branch": "nope"}, NotFoundError),
    ],
)
def test_a_workspace_that_no_task_can_take_is_refused_before_the_start(
    lake: InMemoryLake, changes: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        workflow_run.given_workspace_warning(lake, {"workspace": {**WORKSPACE, **changes}})


# Following: a Conductor that says one thing after the other


class Scripted:
    """Answers reads with given values, the last one for ever; an exception is raised."""

    def __init__(self, *answers: Any, found: Iterable[list[str]] = ()) -> None:
        self._answers = list(answers)
        self._found: Iterator[list[str]] = iter(found)
        self.polled: int | None = None

    def read(self, workflow_id: str) -> WorkflowRun:
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, WorkflowRun)
        return answer

    def start(self, request: dict[str, Any]) -> str:
        raise LostReplyError("cut off")

    def find(self, name: str, correlation_id: str) -> list[str]:
        return next(self._found, [])

    def last_poll_ms(self, task_type: str) -> int | None:
        return self.polled


def step(status: str, **more: Any) -> StepAttempt:
    values = {
        "reference": "clean",
        "task": "clean_orders",
        "kind": "clean_orders",
        "task_id": "t1",
        "retry_count": 0,
        "scheduled_ms": 1,
        "started_ms": 0,
        "ended_ms": 0,
        "is_retried": False,
        "delay_seconds": 0,
    }
    return StepAttempt(**{**values, "status": status, **more})


def run(status: str, *attempts: StepAttempt, **more: Any) -> WorkflowRun:
    return WorkflowRun("w1", "wf", 1, status, 0, 0, attempts=attempts, **more)


def follow(
    *answers: Any, seconds: float = 100.0, polled: int | None = None, read_log: Any = None
) -> list[str]:
    told: list[str] = []
    scripted = Scripted(*answers)
    scripted.polled = polled
    follower = workflow_follow.Follower(
        scripted,  # type: ignore[arg-type]
        "w1",
        told.append,
        ManualClock(),
        read_log,
    )
    follower.follow(seconds)
    return told


def test_every_change_of_a_step_is_told_once() -> None:
    output = {"workspace": {"ref": "abc"}}
    done = step("COMPLETED", started_ms=1000, ended_ms=3500, output=output)
    told = follow(
        run("RUNNING", step("SCHEDULED")),
        run("RUNNING", step("IN_PROGRESS")),
        run("RUNNING", step("IN_PROGRESS")),
        run("COMPLETED", done),
    )
    assert told == [
        "clean: scheduled",
        "clean: in progress",
        "clean: completed, 2.5 s, ref abc",
    ]


def test_the_log_of_an_attempt_is_told_at_its_end_on_request() -> None:
    done = step("COMPLETED", started_ms=1000, ended_ms=2000)

    def read_log(task_id: str) -> list[LogEntry]:
        return [
            LogEntry(f"download of {task_id} 0.100 s objects=1", None),
            LogEntry("output:\nhello", None),
        ]

    told = follow(run("RUNNING", step("IN_PROGRESS")), run("COMPLETED", done), read_log=read_log)
    assert told == [
        *["clean: in progress", "clean: completed, 1.0 s"],
        *["  download of t1 0.100 s objects=1", "  output:", "  hello"],
    ]


def test_a_retry_is_told_with_its_number_its_wait_and_the_reason_before_it() -> None:
    failed = step("FAILED", is_retried=True, reason="TaskFailed: no")
    again = step("SCHEDULED", task_id="t2", retry_count=1, delay_seconds=7)
    told = follow(run("RUNNING", failed, again), run("COMPLETED", failed, again))
    assert told == ["clean: failed: TaskFailed: no", "clean: scheduled, attempt 2, in 7 s"]


def test_a_step_that_no_worker_takes_is_told_with_what_to_do() -> None:
    told = follow(run("RUNNING", step("SCHEDULED")), seconds=8)
    assert told == [
        "clean: scheduled",
        "clean: no worker has taken it; none has ever polled for 'clean_orders'. Start one: "
        "`perago start MODULE`, with the module of task 'clean_orders'",
    ]
    told = follow(run("RUNNING", step("SCHEDULED")), seconds=8, polled=1)
    assert "the last poll for 'clean_orders' was" in told[1]


def test_a_step_of_conductor_s_own_waits_for_no_worker() -> None:
    assert follow(run("RUNNING", step("SCHEDULED", kind="HTTP")), seconds=8) == ["clean: scheduled"]


def test_a_pause_and_a_failing_step_of_conductor_are_told_and_a_passing_one_is_not() -> None:
    passed = step("COMPLETED", kind="SWITCH")
    failed = step("FAILED", kind="SWITCH", reason="no case")
    told = follow(run("PAUSED", passed), run("FAILED", failed))
    assert told == ["the workflow is PAUSED", "clean: failed: no case"]


def test_an_outage_is_waited_out() -> None:
    down = BackendUnavailableError("down")
    assert follow(down, down, run("COMPLETED")) == []


def test_after_a_long_outage_the_error_says_that_the_workflow_goes_on() -> None:
    with pytest.raises(BackendUnavailableError) as raised:
        follow(BackendUnavailableError("down"))
    assert "perago workflow follow w1" in raised.value.hint


# Starting


def start(*found: list[str]) -> str:
    scripted: Any = Scripted(found=found)
    return workflow_run.start(scripted, workflow(), {}, registered=True, clock=ManualClock())


def test_after_a_lost_reply_the_workflow_is_found_and_not_started_again() -> None:
    assert start([], ["w7"]) == "w7"


def test_a_start_that_cannot_be_found_is_unknown() -> None:
    with pytest.raises(UnknownOutcomeError) as raised:
        start()
    assert "correlation id" in raised.value.hint


# The end


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("PublishFenceError: the branch moved", 4),
        ("PRG-502 PublishFenceError: the branch moved", 4),
        ("UnknownOutcomeError: lost", 5),
        ("BackendDeniedError: no", 3),
        ("PreGuardrailViolation: no file", 1),
        ("KeyError: 'x'", 1),
        (None, 1),
    ],
)
def test_the_exit_code_is_that_of_the_error_that_the_reason_names(
    reason: str | None, code: int
) -> None:
    ended = run("FAILED", step("FAILED", reason=reason))
    assert workflow_follow.exit_code_of(ended) == code


def test_a_failure_that_was_retried_is_not_the_reason_of_the_end() -> None:
    first = step("FAILED", is_retried=True, reason="PublishFenceError: moved")
    last = step("FAILED_WITH_TERMINAL_ERROR", task_id="t2", reason="TaskTerminalError: no")
    ended = run("FAILED", first, last)
    assert workflow_follow.error_of(ended) is errors.TaskTerminalError
    assert workflow_follow.exit_code_of(run("COMPLETED", first)) == 0


def test_the_workspace_that_is_left_is_that_of_the_last_step_that_has_one() -> None:
    first = step("COMPLETED", output={"workspace": {"ref": "1"}})
    second = step("COMPLETED", output={"result": {}})
    assert workflow_follow.last_workspace(run("COMPLETED", first, second)) == {"ref": "1"}
    assert workflow_follow.last_workspace(run("FAILED")) is None
