"""What runs now, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perago.cli.watch import as_document, line
from perago.conductor.inspection import TaskView
from perago.errors import NotFoundError
from perago.operations.watching import Sighting, find_running, watch
from perago.protocol.identity import LogicalTask

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
TASK = TaskView(
    task_id="t1",
    task_name="clean",
    status="IN_PROGRESS",
    logical=LogicalTask("w1", "step", 2),
    workflow_name="daily",
    retry_count=1,
    retried_task_id="t0",
    claim="c1",
    reason=None,
    scheduled=NOW,
    started=NOW,
    ended=None,
    input={"params": {}},
    output={},
)


class Tasks:
    """A Conductor whose tasks a test changes, and whose index may lag."""

    def __init__(self, *tasks: TaskView) -> None:
        self.tasks = {task.task_id: task for task in tasks}
        self.hidden: set[str] = set()

    def running(self) -> list[TaskView]:
        found = (task for task in self.tasks.values() if task.status == "IN_PROGRESS")
        return [task for task in found if task.task_id not in self.hidden]

    def task(self, task_id: str) -> TaskView:
        if task_id not in self.tasks:
            raise NotFoundError(task_id)
        return self.tasks[task_id]

    def put(self, **changes: object) -> None:
        self.tasks["t1"] = replace(self.tasks["t1"], **changes)  # type: ignore[arg-type]


class OverError(Exception):
    """The watching is over."""


def told(conductor: Tasks, *steps: Callable[[], object]) -> list[str]:
    """What a watch tells while ``steps``, one between two looks, happen."""
    waiting = iter(steps)

    def pause() -> None:
        try:
            step = next(waiting)
        except StopIteration:
            raise OverError from None
        step()

    found: list[str] = []
    with pytest.raises(OverError):
        found.extend(sighting.what for sighting in watch(conductor, pause))
    return found


def test_an_attempt_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    conductor = Tasks(TASK)
    steps = (lambda: None, lambda: conductor.put(status="COMPLETED", ended=NOW), lambda: None)
    assert told(conductor, *steps) == ["claimed", "ended"]


def test_an_index_that_lags_is_no_end() -> None:
    conductor = Tasks(TASK)
    steps = (lambda: conductor.hidden.add("t1"), conductor.hidden.clear)
    assert told(conductor, *steps) == ["claimed"]


def test_another_claim_of_the_same_task_is_told() -> None:
    conductor = Tasks(TASK)
    assert told(conductor, lambda: conductor.put(claim="c2")) == ["claimed", "claimed"]


def test_an_attempt_that_was_handed_back_or_removed_is_told() -> None:
    conductor = Tasks(TASK)
    steps = (
        lambda: conductor.put(status="SCHEDULED"),
        lambda: conductor.put(status="IN_PROGRESS", claim="c2"),
        conductor.tasks.clear,
    )
    assert told(conductor, *steps) == ["claimed", "requeued", "claimed", "removed"]


@pytest.mark.parametrize("given", [{}, {"params": {}, "x": 1}, {"http_request": {}}])
def test_tasks_of_other_runtimes_are_left_out(given: dict[str, object]) -> None:
    other = replace(TASK, task_id="t2", input=given)
    both = replace(TASK, task_id="t3", input={"params": {}, "workspace": {}})
    more = replace(TASK, task_id="t4", input={"params": {}, "workspace": {}, "inputs": {}})
    assert find_running(Tasks(TASK, other, both, more)) == [TASK, both, more]


def test_a_line_says_how_long_an_attempt_took_and_why_it_failed() -> None:
    ended = NOW + timedelta(seconds=8)
    failed = replace(TASK, status="FAILED", ended=ended, reason="TaskFailed: no")
    text = line(Sighting("ended", failed))
    assert text.startswith("10:00:08Z  FAILED  clean: step step of workflow w1, iteration 2")
    assert text.endswith("attempt t1, retry 1, 8.0 s: TaskFailed: no")
    assert "claimed" in line(Sighting("claimed", TASK))
    assert as_document(TASK, ended)["seconds"] == 8.0
