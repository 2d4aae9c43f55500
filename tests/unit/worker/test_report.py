"""Posting an outcome: never over another claim, and not twice."""

from __future__ import annotations

import pytest

from perago.errors import BackendUnavailableError
from perago.protocol.outcome import Completed, failure_of
from perago.protocol.ports import Delivery
from perago.testing import Faults, InMemoryConductor, ManualClock, TaskSettings, fails, reply_lost
from perago.worker.report import Reported, report

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


def test_a_short_outage_is_waited_out(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    conductor.faults.inject("attempts.read", fails(BackendUnavailableError("down")))
    assert report(conductor, claim, DONE, [], seconds=5) is Reported.POSTED


def test_a_lasting_outage_is_told(conductor: InMemoryConductor) -> None:
    claim = poll(conductor).claim
    with conductor.faults.outage("attempts"), pytest.raises(BackendUnavailableError):
        report(conductor, claim, DONE, [], seconds=0.1)
