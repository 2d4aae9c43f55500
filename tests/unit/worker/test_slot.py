"""When a supervisor lets an attempt go on, and when it stops it."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import BaseModel

from perago import PublishBudget, TaskControls, TimeoutPolicy, task
from perago.errors import AttemptTimeoutError, BodyTimeoutError, Disposition, SparkServerDiedError
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.outcome import Completed, Failed, failure_of
from perago.protocol.ports import Delivery
from perago.tasks.definition import definition_of
from perago.worker import slot
from perago.worker.channel import Finished, Message, PhaseReported
from perago.worker.context import Stopped
from perago.worker.poller import StopSignals
from perago.worker.process import pause_after
from perago.worker.slot import RunningAttempt, Slot
from support.clocks import Clock


class Empty(BaseModel):
    """Nothing."""


@task(
    name="watched",
    owner_email="tests@example.com",
    controls=TaskControls(timeout=TimeoutPolicy(body_seconds=5.0, attempt_seconds=50.0)),
)
def body(params: Empty) -> Empty:
    """Do nothing."""
    return params


@dataclass
class LeaseState:
    is_lost: bool = False
    has_renewed: bool = False
    begun: bool = False

    def begin(self) -> None:
        self.begun = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(slot, "time", clock)
    return clock


@pytest.fixture
def watched(clock: Clock) -> RunningAttempt:
    definition = definition_of(body)
    assert definition is not None
    attempt = Attempt("workflow", "task", 0, "step")
    return RunningAttempt(Execution(Claim(attempt, "token"), "execution"), definition, LeaseState())


def test_the_lease_of_an_attempt_is_kept_unless_it_has_only_just_started(
    watched: RunningAttempt, clock: Clock
) -> None:
    lease = LeaseState()
    watched.heartbeat = lease
    watched.keep_lease()
    assert not lease.begun
    clock.now += 0.2
    watched.keep_lease()
    assert lease.begun


def enter(watched: RunningAttempt, phase: str) -> None:
    watched.record(PhaseReported(action="phase_started", phase=phase, seconds=None, details={}))


def leave(watched: RunningAttempt, phase: str) -> None:
    watched.record(PhaseReported(action="phase_ended", phase=phase, seconds=1.0, details={}))


def stopping() -> StopSignals:
    stops = StopSignals()
    stops.now.set()
    return stops


def test_pauses_grow_with_deaths_in_a_row_and_end_with_health() -> None:
    pauses = [pause_after(deaths) for deaths in range(9)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    # An executor that could not be started all night is tried again in the morning.
    assert pause_after(2000) == 30.0


def test_an_undisturbed_attempt_goes_on(watched: RunningAttempt) -> None:
    enter(watched, "first_fence")
    assert watched.decide(StopSignals()).go
    assert watched.reason_to_stop(StopSignals()) is None
    assert watched.publishing_since is None


@pytest.mark.parametrize("phase", ["second_fence", "publish"])
def test_once_let_into_publishing_it_is_not_stopped(watched: RunningAttempt, phase: str) -> None:
    enter(watched, phase)
    assert watched.decide(StopSignals()).go
    watched.heartbeat = LeaseState(is_lost=True)
    assert watched.reason_to_stop(stopping()) is None


@pytest.mark.parametrize(
    ("budget", "window"),
    [
        (None, 60 + 2 * 5 + 120),
        (PublishBudget(2, 1, 5, 10, 20, 30), 30 + 2 * 3 + 120),  # a relocation takes up to 30 s
        (PublishBudget(200, 20, 240, 10, 20, 30), 240 + 2 * 220 + 120),
    ],
)
def test_a_publish_phase_that_hangs_is_stopped_after_the_window_of_its_budget(
    watched: RunningAttempt, clock: Clock, budget: PublishBudget | None, window: float
) -> None:
    watched.definition = replace(watched.definition, controls=TaskControls(publish_budget=budget))
    enter(watched, "publish")
    watched.decide(StopSignals())
    clock.now += window - 0.1
    assert watched.reason_to_stop(StopSignals()) is None
    clock.now += 0.2
    assert watched.reason_to_stop(StopSignals()) is Stopped.STALE


@pytest.mark.parametrize("phase", ["first_fence", "second_fence", "publish"])
def test_a_stopping_worker_lets_nothing_past_a_fence(watched: RunningAttempt, phase: str) -> None:
    enter(watched, phase)
    answer = watched.decide(stopping())
    assert (answer.go, answer.why) == (False, "the worker stops")
    assert watched.reason_to_stop(stopping()) is Stopped.HANDED_BACK


def test_a_lost_lease_stops_the_attempt_and_closes_the_fences(watched: RunningAttempt) -> None:
    watched.heartbeat = LeaseState(is_lost=True)
    enter(watched, "second_fence")
    assert not watched.decide(StopSignals()).go
    assert watched.reason_to_stop(StopSignals()) is Stopped.STALE


def test_a_lost_lease_is_never_handed_back(watched: RunningAttempt) -> None:
    watched.heartbeat = LeaseState(is_lost=True)
    assert watched.reason_to_stop(stopping()) is Stopped.STALE


def test_a_body_is_stopped_after_its_deadline_and_not_before(
    watched: RunningAttempt, clock: Clock
) -> None:
    enter(watched, "body")
    clock.now += 4.9
    assert watched.reason_to_stop(StopSignals()) is None
    clock.now += 0.2
    reason = watched.reason_to_stop(StopSignals())
    assert isinstance(reason, BodyTimeoutError)
    assert "5 s" in str(reason)


def test_the_deadline_is_the_bodys_alone(watched: RunningAttempt, clock: Clock) -> None:
    enter(watched, "body")
    leave(watched, "body")
    clock.now += 40
    assert watched.reason_to_stop(StopSignals()) is None


@pytest.mark.parametrize("phase", ["download", "stage", "second_fence"])
def test_an_attempt_is_stopped_after_its_deadline_in_any_phase_before_publishing(
    watched: RunningAttempt, clock: Clock, phase: str
) -> None:
    enter(watched, phase)
    clock.now += 49.9
    assert watched.reason_to_stop(StopSignals()) is None
    clock.now += 0.2
    reason = watched.reason_to_stop(StopSignals())
    assert isinstance(reason, AttemptTimeoutError)
    assert str(reason) == f"the attempt ran longer than its deadline of 50 s, in {phase}"
    answer = watched.decide(StopSignals())
    assert (answer.go, answer.why) == (False, "its deadline is over")


def test_the_deadline_of_an_attempt_does_not_cut_its_publication(
    watched: RunningAttempt, clock: Clock
) -> None:
    enter(watched, "publish")
    assert watched.decide(StopSignals()).go
    clock.now += 60
    assert watched.reason_to_stop(StopSignals()) is None


def test_an_attempt_tells_others_its_phase_its_age_and_the_phases_that_ended(
    watched: RunningAttempt, clock: Clock
) -> None:
    enter(watched, "download")
    leave(watched, "download")
    enter(watched, "body")
    failed = {"error": "ValueError"}
    watched.record(PhaseReported(action="phase_failed", phase="body", seconds=2.0, details=failed))
    told = PhaseReported(
        action="task_progress", phase="body", seconds=None, details={"done": 3, "total": 9}
    )
    watched.record(told)
    clock.now += 7.0
    view = watched.view(3)
    assert view.progress == "progress: 3 of 9"
    assert (view.task, view.task_id, view.workflow_id) == ("watched", "task", "workflow")
    assert (view.slot, view.phase, view.seconds) == (3, "body", 7.0)
    assert [(it.phase, it.seconds, it.error) for it in view.phases] == [
        ("download", 1.0, None),
        ("body", 2.0, "ValueError"),
    ]


def test_a_body_is_told_the_time_until_its_first_deadline_and_that_the_worker_stops(
    watched: RunningAttempt, clock: Clock
) -> None:
    stops = StopSignals()
    enter(watched, "download")
    clock.now += 40.0
    assert watched.state(stops).seconds_left == 10.0
    enter(watched, "body")
    clock.now += 1.0
    assert watched.state(stops).seconds_left == 4.0
    clock.now += 30.0
    assert watched.state(stops).seconds_left == 0.0
    assert not watched.state(stops).stopped
    stops.draining.set()
    assert watched.state(stops).stopped


def test_without_a_deadline_no_time_is_told(watched: RunningAttempt) -> None:
    definition = replace(watched.definition, controls=TaskControls())
    state = RunningAttempt(watched.execution, definition, LeaseState()).state(StopSignals(), 7)
    assert (state.number, state.seconds_left) == (7, None)


def test_an_attempt_whose_spark_server_died_is_stopped_at_once_but_not_in_publishing(
    watched: RunningAttempt,
) -> None:
    died = SparkServerDiedError("the Spark server ended with exit code 3")
    enter(watched, "body")
    assert watched.reason_to_stop(StopSignals()) is None
    watched.spark_death = lambda: died
    assert watched.reason_to_stop(StopSignals()) is died
    enter(watched, "second_fence")
    assert watched.decide(StopSignals()).go
    assert watched.reason_to_stop(StopSignals()) is None


class Context:
    """As much of a worker's context as explaining an outcome needs."""

    def __init__(self, died: SparkServerDiedError | None) -> None:
        self._died = died

    def spark_death(self, execution_id: str, seconds: float) -> SparkServerDiedError | None:
        assert execution_id == "execution"
        return self._died


def explain(error: Exception, died: SparkServerDiedError | None, watched: RunningAttempt) -> Failed:
    context: Any = Context(died)
    nobody: Any = None
    found = Slot(0, context, {}, [], StopSignals(), nobody)._explain(failure_of(error), watched)
    assert isinstance(found, Failed)
    return found


def test_a_supervisor_whose_machine_is_at_its_end_says_so(watched: RunningAttempt) -> None:
    """So that polling pauses: the next attempt would fare no better."""
    context: Any = Context(None)
    nobody: Any = None
    worker_slot = Slot(0, context, {}, [], StopSignals(), nobody)
    full = OSError(errno.EMFILE, "Too many open files")
    failed = worker_slot._fail_unexpectedly(full, watched, nobody)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.is_infrastructure) == ("PRG-104", True)
    failed = worker_slot._fail_unexpectedly(LookupError("a bug"), watched, nobody)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.is_infrastructure) == ("PRG-000", False)


def test_what_an_executor_noticed_first_gets_the_reason_that_the_supervisor_knows(
    watched: RunningAttempt,
) -> None:
    noticed = SparkServerDiedError("nothing listens")
    known = SparkServerDiedError("it ended with exit code 3: java.lang.OutOfMemoryError: heap")
    found = explain(noticed, known, watched)
    assert (found.code, found.reason) == ("PRG-311", f"SparkServerDiedError: {known}")
    assert "nothing listens" in found.trace
    assert found.disposition is Disposition.RETRY
    # An external server, and an error that has nothing to do with it.
    assert explain(noticed, None, watched).reason.endswith("nothing listens")
    assert explain(ValueError("no"), known, watched).reason == "ValueError: no"


class Executor:
    """As much of an executor as an attempt that runs there: it says what it was given."""

    def __init__(self, *says: Message) -> None:
        self.channel = self
        self._says = list(says)

    def send(self, message: Message) -> None:
        """Take an assignment."""

    def receive(self, _seconds: float) -> Message:
        return self._says.pop(0)


def test_the_outcome_of_another_attempt_is_not_taken_for_this_one(watched: RunningAttempt) -> None:
    other = replace(watched.execution, id="another")
    own = Completed({"result": {"value": "own"}})
    executor: Any = Executor(
        Finished.of(other, Completed({"result": {"value": "other"}})),
        Finished.of(watched.execution, own),
    )
    context: Any = Context(None)
    nobody: Any = None
    delivery: Any = Delivery(watched.execution.claim, "watched", {"params": {}}, 60.0)
    found = Slot(0, context, {}, [], StopSignals(), nobody)._watch(
        executor, watched, delivery, nobody
    )
    assert found == own


def test_an_attempt_keeps_its_phases_and_a_bounded_number_of_events(
    watched: RunningAttempt,
) -> None:
    leave(watched, "download")
    for number in range(3000):
        details = {"done": number}
        watched.record(
            PhaseReported(action="partition_done", phase="body", seconds=1.0, details=details)
        )
    assert [event.phase for event in watched.events] == ["download"]
    for number in range(3000):
        details = {"done": number}
        watched.record(
            PhaseReported(action="task_progress", phase="body", seconds=None, details=details)
        )
    assert len(watched.events) == 1000
    assert watched.events[-1].details == {"done": 2999}
