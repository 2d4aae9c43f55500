"""The line between supervisor and executor: whole messages, time limits, numbered answers."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from perago.errors import StaleAttemptError
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.outcome import Completed, failure_of
from perago.tasks.context import AttemptState
from perago.worker import executor
from perago.worker.channel import (
    Assignment,
    Channel,
    ChannelClosedError,
    Finished,
    MayProceed,
    OutputReported,
    PhaseReported,
    ProceedDecision,
    StateReported,
    StateRequested,
)
from support.waiting import joined

EXECUTION = Execution(Claim(Attempt("w", "t", 0, "step"), "token"), "execution")


def nothing() -> None:
    """Stand in for the end of the process."""


class Pair:
    """Both ends of a line."""

    def __init__(self, **options: Any) -> None:
        one, other = socket.socketpair()
        self.supervisor, self.executor = Channel(one, **options), Channel(other, **options)
        self.raw = one

    def close(self) -> None:
        self.supervisor.close()
        self.executor.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_a_large_message_is_not_cut_by_a_receiver_that_ticks(pair: Pair) -> None:
    """The executor asks and prints while the supervisor sends it 20 MB."""
    payload = {"params": {"text": "x" * 20_000_000}}
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            pair.supervisor.receive(0.001)

    ticking = threading.Thread(target=tick)
    ticking.start()
    sending = threading.Thread(
        target=lambda: pair.supervisor.send(Assignment.of("task", EXECUTION, payload))
    )
    sending.start()
    time.sleep(0.3)  # the line is full, and nobody reads
    message = pair.executor.receive(10)
    sending.join(10)
    stop.set()
    ticking.join(10)
    assert isinstance(message, Assignment)
    assert message.payload == payload


def test_sending_to_an_end_that_takes_nothing_has_a_time_limit() -> None:
    pair = Pair(send_seconds=0.2)
    with pytest.raises(ChannelClosedError, match=r"within 0\.2 s"):
        pair.supervisor.send(OutputReported(text="x" * 20_000_000))
    # Half a message is on the line: the other end must not wait for its rest.
    with pytest.raises(ChannelClosedError):
        pair.executor.receive(1)
    pair.close()


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 16, b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x03\xff\xfe\xfd"]
)
def test_what_is_no_message_closes_the_line(pair: Pair, garbage: bytes) -> None:
    pair.raw.send(garbage)
    with pytest.raises(ChannelClosedError, match="no message"):
        pair.executor.receive(1)


def test_no_input_can_break_the_message_around_it(pair: Pair) -> None:
    payload = {"a": "\ud800", "b": float("inf"), "c": {"kind": "finished"}}
    pair.supervisor.send(Assignment.of("task", EXECUTION, payload))
    message = pair.executor.receive(1)
    assert isinstance(message, Assignment)
    assert message.payload == payload


@pytest.mark.parametrize(
    "outcome", [Completed({"result": {"x": [1, None, "ä"]}}), failure_of(ValueError("\ud800"))]
)
def test_an_outcome_arrives_as_it_was(pair: Pair, outcome: Any) -> None:
    pair.executor.send(Finished.of(EXECUTION, outcome))
    message = pair.supervisor.receive(1)
    assert isinstance(message, Finished)
    assert message.outcome == outcome


def test_events_with_any_detail_can_be_reported(pair: Pair) -> None:
    line = executor.SupervisorLine(pair.executor, on_end=nothing)
    details = {"text": "\ud800", "deep": {"x": {"\ud800"}}, "odd": object(), "n": 1, "f": 0.5}
    line.report_phase(PhaseEvent("phase_ended", "body", 1.0, details))
    message = pair.supervisor.receive(1)
    assert isinstance(message, PhaseReported)
    assert (message.details["n"], message.details["f"]) == (1, 0.5)


def test_a_body_that_asks_for_its_state_gets_the_supervisor_s_answer(pair: Pair) -> None:
    line = executor.SupervisorLine(pair.executor, on_end=nothing)

    def answer() -> None:
        asked = pair.supervisor.receive(5)
        assert isinstance(asked, StateRequested)
        told = StateReported(number=asked.number, seconds_left=2.5, stopped=True)
        pair.supervisor.send(told)

    thread = threading.Thread(target=answer)
    thread.start()
    assert line.ask_state() == AttemptState(seconds_left=2.5, stopped=True)
    joined(thread)


def test_a_late_answer_is_not_taken_for_the_next_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "ANSWER_SECONDS", 0.1)
    line = executor.SupervisorLine(pair.executor, on_end=nothing)
    with pytest.raises(StaleAttemptError):
        line.ask_to_proceed()
    first = pair.supervisor.receive(1)
    assert isinstance(first, MayProceed)
    pair.supervisor.send(ProceedDecision(number=first.number, go=True))
    time.sleep(0.1)
    with pytest.raises(StaleAttemptError):  # the late yes does not count for this question
        line.ask_to_proceed()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_end_of_the_reading_thread_ends_the_executor() -> None:
    class Broken:
        def receive(self, _: float | None) -> None:
            raise SystemExit

    broken: Any = Broken()
    ended = threading.Event()
    executor.SupervisorLine(broken, on_end=ended.set)
    assert ended.wait(5)
    # Its exception must be this test's, and not the next one's.
    for thread in threading.enumerate():
        if thread.name == "perago-line" and thread is not threading.current_thread():
            thread.join(5)


def test_a_forked_process_writes_nothing_to_the_line_of_its_parent(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its frames would come between the parts of its parent's."""
    line = executor.SupervisorLine(pair.executor, on_end=nothing)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    line.report_output("INFO author: logged by a child")
    with capture_logs() as logged:
        line.report_phase(PhaseEvent("task_progress", "body", None, {"done": 1}))
    with pytest.raises(StaleAttemptError):
        line.ask_to_proceed()
    monkeypatch.undo()
    assert pair.supervisor.receive(0.05) is None
    assert capfd.readouterr().err == "INFO author: logged by a child\n"
    assert [(line["event"], line["done"]) for line in logged] == [("task_progress", 1)]
    line.report_output("of the parent")
    assert pair.supervisor.receive(1) == OutputReported(text="of the parent")


def test_no_detail_of_an_event_is_longer_than_its_bound(pair: Pair) -> None:
    line = executor.SupervisorLine(pair.executor, on_end=nothing)
    details = {"list": ["x" * 100] * 1000, "dict": {str(n): n for n in range(9999)}, "few": [1, 2]}
    line.report_phase(PhaseEvent("phase_ended", "body", 1.0, details))
    message = pair.supervisor.receive(1)
    assert isinstance(message, PhaseReported)
    assert message.details["few"] == [1, 2]
    assert all(len(str(message.details[name])) <= 2000 for name in ("list", "dict"))
