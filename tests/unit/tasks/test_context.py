"""What a body learns of its attempt, and how much of its progress is told."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pydantic import BaseModel

import perago
from perago import task
from perago.operations.local_run import run_alone
from perago.protocol.events import PhaseEvent, describe_progress
from perago.protocol.outcome import Completed
from perago.settings import Settings
from perago.tasks import context as module
from perago.tasks.context import AttemptState, TaskContext, attempt_context
from perago.tasks.definition import definition_of
from support.clocks import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def telling() -> tuple[TaskContext, list[Any]]:
    told: list[Any] = []
    return TaskContext(_tell=lambda *given: told.append(given)), told


def test_a_function_that_is_called_directly_has_a_context_of_no_attempt() -> None:
    found = perago.context()
    assert (found.task_id, found.attempt_number) == ("", 1)
    assert (found.seconds_left, found.stopped) == (None, False)
    found.progress(1, 2)


def test_within_an_attempt_there_is_its_own_and_afterwards_none() -> None:
    given, told = telling()
    given.task_id = "the task"
    with attempt_context(given):
        assert perago.context() is given
    assert perago.context().task_id == ""
    # A thread that the body left behind must not speak for the next attempt.
    given.progress(1)
    assert told == []
    assert (given.seconds_left, given.stopped) == (0.0, True)


def test_the_state_is_asked_for_each_time() -> None:
    states = iter([AttemptState(5.0), AttemptState(4.0, stopped=True)])
    found = TaskContext(_ask=lambda: next(states))
    assert found.seconds_left == 5.0
    assert found.stopped


def test_a_forked_process_asks_nothing_because_it_would_get_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer comes to its parent; it waited for ten seconds, and then failed."""
    found = TaskContext(_ask=lambda: AttemptState(seconds_left=5.0, stopped=True))
    assert (found.seconds_left, found.stopped) == (5.0, True)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert (found.seconds_left, found.stopped) == (None, False)


def test_progress_is_told_at_pauses_that_grow(clock: Clock) -> None:
    found, told = telling()
    times = []
    for second in range(100_000):
        clock.now = 100.0 + second
        before = len(told)
        found.progress(second, 200_000)
        times += [second] if len(told) > before else []
    assert times[:7] == [0, 10, 30, 70, 150, 310, 610]
    assert len(times) < 350


def test_the_last_of_it_is_told_soon(clock: Clock) -> None:
    found, told = telling()
    found.progress(0, 3)
    clock.now += 2.0
    for done in (1, 2, 3, 3):
        found.progress(done, 3)
    assert told == [(0, 3), (3, 3)]


class Empty(BaseModel):
    """Nothing."""


class Seen(BaseModel):
    """What the body saw."""

    task: str
    attempt_number: int
    ids: list[str]


@task(name="curious", owner_email="tests@example.com")
def curious(params: Empty) -> Seen:
    """Look around."""
    found = perago.context()
    found.progress(1)
    ids = [found.workflow_id, found.task_id, found.execution_id]
    return Seen(task=found.task, attempt_number=found.attempt_number, ids=ids)


def test_a_local_run_has_a_context_whose_progress_is_an_event() -> None:
    definition = definition_of(curious)
    assert definition is not None
    events: list[PhaseEvent] = []
    outcome = run_alone(definition, {}, Settings(), events.append)
    assert isinstance(outcome, Completed)
    seen = outcome.output["result"]
    assert (seen["task"], seen["attempt_number"]) == ("curious", 1)
    assert all(seen["ids"])
    told = [event for event in events if event.action == "task_progress"]
    assert [describe_progress(event) for event in told] == ["progress: 1"]
