"""Conductor as workers and operators meet it: claims, leases, retries, reruns, stale posts."""

from __future__ import annotations

import itertools

import pytest

from perago.errors import ConflictError, NotFoundError, TaskTerminalError
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, failure_of
from perago.protocol.ports import Delivery
from support.conductors import PAYLOAD, ConductorUnderTest

DONE = Completed({"result": {"n": 1}})
FAILED = failure_of(RuntimeError("no luck"))
TERMINAL = failure_of(TaskTerminalError("never"))
DOMAINS = (None, "north", "south")
_tokens = itertools.count(1)


def poll(conductor: ConductorUnderTest) -> Delivery:
    token = f"claim-{next(_tokens)}"
    delivery = conductor.attempts.poll(conductor.task_type, token, wait_ms=5000)
    assert delivery is not None
    assert delivery.claim.token == token
    return delivery


def assert_queue_is_empty(conductor: ConductorUnderTest) -> None:
    assert conductor.attempts.poll(conductor.task_type, "claim-of-nothing", wait_ms=200) is None


def test_a_poll_delivers_the_task_and_leaves_its_token_on_it(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start(response_timeout=45)
    delivery = poll(conductor)
    attempt = delivery.claim.attempt
    assert delivery.payload == PAYLOAD
    assert delivery.response_timeout_seconds == 45
    assert (attempt.workflow_instance_id, attempt.reference_name) == (workflow_id, "step")
    assert (attempt.retry_count, attempt.seq, attempt.iteration) == (0, 1, 0)
    assert attempt.retried_task_id is None
    assert attempt.scheduled_ms > 0
    fresh = conductor.attempts.read(attempt.task_id)
    assert fresh.status == "IN_PROGRESS"
    assert fresh.worker_id == delivery.claim.token
    assert fresh.response_timeout_seconds == 45
    assert_queue_is_empty(conductor)


def test_a_poll_for_several_delivers_what_is_there_under_one_token(
    conductor: ConductorUnderTest,
) -> None:
    workflows = {conductor.start() for _ in range(3)}
    poll_batch, found = conductor.attempts.poll_batch, []
    # How many of those that are there a real server gives at once is its own affair.
    for number in range(10):
        token = f"claim-of-several-{number}"
        batch = poll_batch(conductor.task_type, token, 2, wait_ms=1000)
        assert len(batch) <= 2
        assert all(delivery.claim.token == token for delivery in batch)
        found += batch
        if len(found) == 3:
            break
    assert {delivery.claim.attempt.workflow_instance_id for delivery in found} == workflows
    for delivery in found:
        fresh = conductor.attempts.read(delivery.claim.attempt.task_id)
        assert fresh.worker_id == delivery.claim.token
    assert_queue_is_empty(conductor)


@pytest.mark.parametrize("domain", [None, "north"])
def test_a_task_waits_in_the_queue_of_its_domain_until_it_is_polled_there(
    conductor: ConductorUnderTest, domain: str | None
) -> None:
    types = [f"{conductor.task_type}-other", conductor.task_type]
    assert conductor.attempts.find_waiting(types, domain=domain) == []
    conductor.start(domain=domain)
    waiting = {name: conductor.attempts.find_waiting(types, domain=name) for name in DOMAINS}
    assert waiting == {name: types[1:] if name == domain else [] for name in DOMAINS}
    for other in DOMAINS:
        if other != domain:
            found = conductor.attempts.poll(types[1], "claim-elsewhere", domain=other, wait_ms=100)
            assert found is None
    delivery = conductor.attempts.poll(types[1], "claim-here", domain=domain, wait_ms=5000)
    assert delivery is not None
    conductor.attempts.complete(delivery.claim, DONE, [])
    assert conductor.attempts.find_waiting(types, domain=domain) == []


def test_a_task_that_is_not_there_is_not_found(conductor: ConductorUnderTest) -> None:
    nothing = Claim(Attempt("no-workflow", "no-task", 0, "step"), "claim")
    with pytest.raises(NotFoundError):
        conductor.attempts.read("no-task")
    with pytest.raises(NotFoundError):
        conductor.attempts.renew(nothing)
    with pytest.raises(NotFoundError):
        conductor.attempts.complete(nothing, DONE, [])


def test_a_completion_ends_task_and_workflow(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.complete(claim, DONE, ["a line"])
    fresh = conductor.attempts.read(claim.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("COMPLETED", claim.token)
    assert conductor.status(workflow_id) == "COMPLETED"
    assert_queue_is_empty(conductor)


def test_a_failure_makes_a_new_attempt_that_names_the_old_one(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start()
    old = poll(conductor).claim
    conductor.attempts.complete(old, FAILED, [])
    new = poll(conductor).claim
    assert new.attempt.task_id != old.attempt.task_id
    assert new.attempt.retry_count == 1
    assert new.attempt.retried_task_id == old.attempt.task_id
    assert new.attempt.logical == old.attempt.logical
    assert new.attempt.scheduled_ms > old.attempt.scheduled_ms
    stored = conductor.attempts.read(old.attempt.task_id)
    assert (stored.status, stored.worker_id) == ("FAILED", old.token)
    assert conductor.attempts.read(new.attempt.task_id).retried_task_id == old.attempt.task_id
    assert conductor.status(workflow_id) == "RUNNING"


def test_retries_run_out(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start(retries=1)
    for _ in range(2):
        conductor.attempts.complete(poll(conductor).claim, FAILED, [])
    assert conductor.status(workflow_id) == "FAILED"
    assert_queue_is_empty(conductor)


def test_a_terminal_failure_is_not_retried(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.complete(claim, TERMINAL, [])
    assert conductor.attempts.read(claim.attempt.task_id).status == "FAILED_WITH_TERMINAL_ERROR"
    assert conductor.status(workflow_id) == "FAILED"
    assert_queue_is_empty(conductor)


def test_an_operators_retry_is_a_retry_like_any_other(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    old = poll(conductor).claim
    conductor.attempts.complete(old, TERMINAL, [])
    conductor.retry(workflow_id)
    new = poll(conductor).claim
    assert new.attempt.retry_count == 1
    assert new.attempt.retried_task_id == old.attempt.task_id
    assert new.attempt.scheduled_ms > old.attempt.scheduled_ms


def test_a_renewed_lease_keeps_claim_and_place(conductor: ConductorUnderTest) -> None:
    conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.renew(claim)
    fresh = conductor.attempts.read(claim.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("IN_PROGRESS", claim.token)
    assert_queue_is_empty(conductor)


def test_a_renewal_by_a_stranger_is_taken_and_changes_no_claim(
    conductor: ConductorUnderTest,
) -> None:
    conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.renew(Claim(claim.attempt, "stranger"))
    assert conductor.attempts.read(claim.attempt.task_id).worker_id == claim.token


def test_renewing_a_finished_task_answers_and_does_nothing(conductor: ConductorUnderTest) -> None:
    conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.complete(claim, DONE, [])
    conductor.attempts.renew(claim)
    assert conductor.attempts.read(claim.attempt.task_id).status == "COMPLETED"
    assert_queue_is_empty(conductor)


def test_a_task_handed_back_is_delivered_again_as_the_same_attempt(
    conductor: ConductorUnderTest,
) -> None:
    conductor.start()
    first = poll(conductor).claim
    conductor.hand_back(first)
    assert conductor.attempts.read(first.attempt.task_id).status == "SCHEDULED"
    second = poll(conductor).claim
    assert second.attempt == first.attempt
    assert conductor.attempts.read(first.attempt.task_id).worker_id == second.token


def test_a_requeued_task_is_delivered_while_in_progress(conductor: ConductorUnderTest) -> None:
    conductor.start()
    first = poll(conductor).claim
    conductor.requeue()
    second = poll(conductor).claim
    assert second.attempt == first.attempt
    fresh = conductor.attempts.read(first.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("IN_PROGRESS", second.token)


def test_a_stale_failure_ends_the_live_claim_and_takes_its_place(
    conductor: ConductorUnderTest,
) -> None:
    """Why nothing is posted without reading first."""
    conductor.start()
    stale = poll(conductor).claim
    conductor.hand_back(stale)
    live = poll(conductor).claim
    conductor.attempts.complete(stale, FAILED, [])
    fresh = conductor.attempts.read(live.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("FAILED", stale.token)


def test_a_post_on_a_finished_attempt_is_ignored(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.complete(claim, FAILED, [])
    conductor.attempts.complete(Claim(claim.attempt, "late"), DONE, [])
    fresh = conductor.attempts.read(claim.attempt.task_id)
    assert (fresh.status, fresh.worker_id) == ("FAILED", claim.token)
    assert conductor.status(workflow_id) == "RUNNING"


def test_a_rerun_resets_the_same_task_id_and_schedules_it_later(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start()
    conductor.attempts.complete(poll(conductor).claim, FAILED, [])
    old = poll(conductor).claim
    conductor.attempts.complete(old, DONE, [])
    conductor.rerun(workflow_id, old.attempt.task_id)
    waiting = conductor.attempts.read(old.attempt.task_id)
    assert (waiting.status, waiting.worker_id) == ("SCHEDULED", old.token)
    new = poll(conductor).claim
    assert new.attempt.task_id == old.attempt.task_id
    assert new.attempt.retry_count == old.attempt.retry_count == 1
    assert new.attempt.retried_task_id == old.attempt.retried_task_id
    assert new.attempt.scheduled_ms > old.attempt.scheduled_ms
    assert conductor.attempts.read(old.attempt.task_id).worker_id == new.token


def test_a_rerun_from_an_earlier_attempt_forgets_the_later_ones(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start()
    first = poll(conductor).claim
    conductor.attempts.complete(first, FAILED, [])
    second = poll(conductor).claim
    conductor.attempts.complete(second, DONE, [])
    conductor.rerun(workflow_id, first.attempt.task_id)
    with pytest.raises(NotFoundError):
        conductor.attempts.read(second.attempt.task_id)
    again = poll(conductor).claim
    assert again.attempt.task_id == first.attempt.task_id
    assert again.attempt.scheduled_ms > second.attempt.scheduled_ms


def test_a_running_workflow_is_not_rerun(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    with pytest.raises(ConflictError):
        conductor.rerun(workflow_id, claim.attempt.task_id)


def test_a_restart_makes_a_new_first_attempt_scheduled_later(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start()
    conductor.attempts.complete(poll(conductor).claim, FAILED, [])
    old = poll(conductor).claim
    conductor.attempts.complete(old, DONE, [])
    conductor.restart(workflow_id)
    new = poll(conductor).claim
    assert new.attempt.task_id != old.attempt.task_id
    assert new.attempt.workflow_instance_id == workflow_id
    assert (new.attempt.retry_count, new.attempt.retried_task_id) == (0, None)
    assert new.attempt.scheduled_ms > old.attempt.scheduled_ms


def test_a_terminated_workflow_cancels_its_task_and_ignores_posts(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    conductor.terminate(workflow_id)
    assert conductor.attempts.read(claim.attempt.task_id).status == "CANCELED"
    conductor.attempts.complete(claim, DONE, [])
    assert conductor.attempts.read(claim.attempt.task_id).status == "CANCELED"
    assert conductor.status(workflow_id) == "TERMINATED"
    assert_queue_is_empty(conductor)


def test_a_lease_that_runs_out_times_the_attempt_out_and_retries_it(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start(retries=1, response_timeout=1)
    old = poll(conductor).claim
    conductor.let_lease_expire(workflow_id, 1)
    assert conductor.attempts.read(old.attempt.task_id).status == "TIMED_OUT"
    new = poll(conductor).claim
    assert new.attempt.retried_task_id == old.attempt.task_id
    assert new.attempt.scheduled_ms > old.attempt.scheduled_ms
    conductor.attempts.complete(old, DONE, [])
    stored = conductor.attempts.read(old.attempt.task_id)
    assert (stored.status, stored.worker_id) == ("TIMED_OUT", old.token)
    conductor.let_lease_expire(workflow_id, 1)
    assert conductor.status(workflow_id) == "TIMED_OUT"


def test_a_workflow_that_only_retried_by_itself_has_not_ended_before(
    conductor: ConductorUnderTest,
) -> None:
    workflow_id = conductor.start(response_timeout=1)
    assert not conductor.attempts.has_ended_before(workflow_id)
    conductor.attempts.complete(poll(conductor).claim, FAILED, [])
    poll(conductor)
    conductor.let_lease_expire(workflow_id, 1)
    poll(conductor)
    assert not conductor.attempts.has_ended_before(workflow_id)
    with pytest.raises(NotFoundError):
        conductor.attempts.has_ended_before("no-workflow")


@pytest.mark.parametrize("how", ["retry", "rerun"])
def test_a_workflow_that_an_operator_set_going_again_has_ended_before(
    conductor: ConductorUnderTest, how: str
) -> None:
    workflow_id = conductor.start()
    claim = poll(conductor).claim
    conductor.attempts.complete(claim, TERMINAL, [])
    if how == "retry":
        conductor.retry(workflow_id)
    else:
        conductor.rerun(workflow_id, claim.attempt.task_id)
    again = poll(conductor).claim
    assert conductor.attempts.has_ended_before(workflow_id)
    conductor.attempts.complete(again, FAILED, [])
    poll(conductor)
    assert conductor.attempts.has_ended_before(workflow_id)


def test_a_restarted_workflow_begins_anew(conductor: ConductorUnderTest) -> None:
    workflow_id = conductor.start()
    conductor.attempts.complete(poll(conductor).claim, TERMINAL, [])
    conductor.restart(workflow_id)
    poll(conductor)
    assert not conductor.attempts.has_ended_before(workflow_id)
