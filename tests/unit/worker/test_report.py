"""Posting an outcome: never over another claim, and not twice."""

from __future__ import annotations

import threading
import time

import pytest

from perago.errors import (
    BackendRefusedError,
    BackendUnavailableError,
    NotFoundError,
    TaskFailed,
)
from perago.masking import remember_secret
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed, failure_of
from perago.protocol.ports import Delivery
from perago.testing import Faults, InMemoryConductor, ManualClock, TaskSettings, fails, reply_lost
from perago.testing.faults import Fault
from perago.worker.heartbeat import Heartbeat
from perago.worker.report import Reported, hand_back, report, task_log
from support.waiting import until

DONE = Completed({"result": {}})
FAILED = failure_of(RuntimeError("no"))


@pytest.fixture
def conductor() -> InMemoryConductor:
    made = InMemoryConductor(ManualClock(), Faults())
    made.start(TaskSettings("task"), {})
    return made


def poll(conductor: InMemoryConductor, name: str = "claim") -> Delivery:
    delivery = conductor.poll("task", name)
    assert delivery is not None
    return delivery


def test_an_outcome_is_posted(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    assert report(conductor, claim, DONE, ["log"], seconds=5) is Reported.POSTED
    (task,) = conductor.workflow(claim.attempt.workflow_instance_id).tasks
    assert (task.status, task.output, task.logs) == ("COMPLETED", {"result": {}}, ["log"])


def test_nothing_is_posted_over_another_claim(conductor: InMemoryConductor) -> None:
    old = poll(conductor, "old").claim
    conductor.requeue("task")
    poll(conductor, "new")
    assert report(conductor, old, FAILED, [], seconds=5) is Reported.STALE
    fresh = conductor.read(old.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("IN_PROGRESS", "new")
    assert "attempts.complete" not in conductor.faults.calls


def test_a_post_whose_reply_was_lost_is_not_made_again(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.complete", reply_lost)
    assert report(conductor, claim, FAILED, [], seconds=5) is Reported.POSTED
    assert conductor.faults.calls.count("attempts.complete") == 1


def calls_of(conductor: InMemoryConductor) -> list[str]:
    return [call.removeprefix("attempts.") for call in conductor.faults.calls]


def test_a_claim_that_was_just_made_is_not_read_again(conductor: InMemoryConductor) -> None:
    read_at = time.monotonic()
    claim = poll(conductor).claim
    posted = report(conductor, claim, DONE, [], seconds=5, read_at=read_at, read_back=False)
    assert posted is Reported.POSTED
    assert calls_of(conductor) == ["poll", "complete"]


def test_a_claim_that_was_made_some_time_ago_is_read_again(conductor: InMemoryConductor) -> None:
    old = poll(conductor, "old").claim
    conductor.requeue("task")
    poll(conductor, "new")
    read_at = time.monotonic() - 0.25
    posted = report(conductor, old, FAILED, [], seconds=5, read_at=read_at, read_back=False)
    assert posted is Reported.STALE
    assert "complete" not in calls_of(conductor)


@pytest.mark.parametrize("fault", [reply_lost, fails(BackendUnavailableError("down"))])
def test_only_the_first_try_goes_without_a_reading(
    conductor: InMemoryConductor, fault: Fault
) -> None:
    """After it, Conductor may have taken the post, and made something new of the task."""
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.complete", fault)
    now = time.monotonic()
    posted = report(conductor, claim, DONE, [], seconds=5, read_at=now, read_back=False)
    assert posted is Reported.POSTED
    assert calls_of(conductor)[:3] == ["poll", "complete", "read"]


def test_a_post_that_a_late_renewal_overwrote_is_made_again(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.complete", lambda _: None)
    assert report(conductor, claim, DONE, [], seconds=5) is Reported.POSTED
    assert calls_of(conductor).count("complete") == 2
    assert conductor.read(claim.attempt.task_id).status == "COMPLETED"


def test_a_heartbeat_says_whether_a_renewal_was_sent(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    with Heartbeat(conductor, claim, 60.0) as heartbeat:
        heartbeat.begin()
        heartbeat.begin()
    assert not heartbeat.has_renewed
    conductor.faults.inject("attempts.renew", fails(BackendUnavailableError("no answer")))
    with Heartbeat(conductor, claim, 0.01) as heartbeat:
        heartbeat.begin()
        until(lambda: heartbeat.has_renewed, "a renewal")
    assert heartbeat.has_renewed


def test_a_short_outage_is_waited_out(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.read", fails(BackendUnavailableError("down")))
    assert report(conductor, claim, DONE, [], seconds=5) is Reported.POSTED


def test_a_lasting_outage_is_told(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    with conductor.faults.outage("attempts"), pytest.raises(BackendUnavailableError):
        report(conductor, claim, DONE, [], seconds=0.1)


def test_no_secret_and_no_control_character_is_posted(conductor: InMemoryConductor) -> None:
    remember_secret("key-of-this-test")
    claim = poll(conductor).claim
    failed = failure_of(TaskFailed("\x1b[2J key-of-this-test", hint="not key-of-this-test"))
    assert report(conductor, claim, failed, ["a key-of-this-test \x9b"], seconds=5)
    task, _retry = conductor.workflow(claim.attempt.workflow_instance_id).tasks
    assert task.logs == ["a ******** \\x9b"]
    assert task.reason == "TaskFailed: \\x1b[2J ******** [PRG-301] Try: not ********"


def test_a_post_that_conductor_refuses_is_replaced_by_a_failure_that_says_so(
    conductor: InMemoryConductor,
) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.complete", fails(BackendRefusedError("400 too large")))
    assert report(conductor, claim, DONE, ["log"], seconds=5) is Reported.REFUSED
    (task, *_) = conductor.workflow(claim.attempt.workflow_instance_id).tasks
    assert task.status == "FAILED"
    assert "refused the result of this attempt: 400 too large" in str(task.reason)
    assert task.logs == []


def test_a_task_that_is_gone_counts_as_neither_posted_nor_lost(
    conductor: InMemoryConductor,
) -> None:
    claim = poll(conductor).claim
    gone = fails(NotFoundError("no such task"))
    conductor.faults.inject("attempts.read", gone)
    assert report(conductor, claim, DONE, [], seconds=5) is Reported.GONE
    conductor.faults.inject("attempts.read", gone)
    assert hand_back(conductor, claim, seconds=5) is Reported.GONE
    assert "attempts.complete" not in conductor.faults.calls


@pytest.mark.parametrize("error", [NotFoundError("gone"), None])
def test_a_heartbeat_sees_that_its_task_is_gone_and_survives_any_other_surprise(
    conductor: InMemoryConductor, error: Exception | None
) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.read", fails(error or AttributeError("no such field")))
    lost: list[bool] = []
    with Heartbeat(conductor, claim, 0.01, on_loss=lambda: lost.append(True)) as heartbeat:
        heartbeat.begin()
        if error is not None:
            until(lambda: heartbeat.is_lost, "the loss to be noticed")
        else:
            until(lambda: "attempts.renew" in conductor.faults.calls, "the next heartbeat")
    assert lost == ([True] if error is not None else [])


def test_every_entry_of_a_task_log_is_bounded_and_valid_unicode() -> None:
    details = {"message": "x\ud800" * 5000}
    events = [PhaseEvent("phase_ended", "body", 1.0, details)] * 50
    events += [PhaseEvent("licence_withdrawn", "withdraw", None, details)] * 50
    entries = task_log(events, failure_of(RuntimeError("\ud800" * 100_000)), "out\ud800" * 9000)
    assert len(entries) <= 10
    assert max(len(entry.encode()) for entry in entries) <= 80_000
    assert entries[-2].startswith("RuntimeError: ")


def test_a_heartbeat_without_a_thread_says_why(
    conductor: InMemoryConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    claim = poll(conductor).claim
    with (
        pytest.raises(RuntimeError, match="can't start new thread"),
        Heartbeat(conductor, claim, 60.0) as heartbeat,
    ):
        heartbeat.begin()
