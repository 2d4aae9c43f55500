"""The schedules of sections 7 and 8, one by one, on real servers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from perago.errors import BackendError, BackendUnavailableError, LostReplyError, NotFoundError
from perago.protocol.outcome import Completed, Failed
from perago.protocol.ports import Delivery, Lake
from perago.protocol.workspace import StagedWorkspace
from perago.worker.report import Reported
from support.real_world import (
    SEED,
    Body,
    Interfering,
    Params,
    RealWorld,
    Result,
    write_new,
    write_nothing,
)
from support.waiting import joined

pytestmark = pytest.mark.servers

# Nobody renews a lease here between fences, and a server that has just started answers slowly.
LEASE_SECONDS = 5


def time_out(world: RealWorld, workflow: str, delivery: Delivery) -> None:
    """Let the response timeout of an attempt pass, as after the death of its worker."""
    for _ in range(100):
        world.operate("PUT", f"/workflow/decide/{workflow}")
        if world.tasks(workflow)[0]["status"] == "TIMED_OUT":
            return
        time.sleep(0.2)
    raise AssertionError(f"attempt {delivery.claim.attempt.task_id} does not time out")


def publish_and_die(world: RealWorld, **job: Any) -> tuple[str, str]:
    """An attempt that publishes and is never reported; the workflow and the commit."""
    workflow = world.start(responseTimeoutSeconds=LEASE_SECONDS)
    delivery = world.claim()
    outcome = world.run(world.job(write_new, **job), delivery)
    assert isinstance(outcome, Completed)
    time_out(world, workflow, delivery)
    return workflow, str(outcome.output["workspace"]["ref"])


def last_task(world: RealWorld, workflow: str) -> dict[str, Any]:
    return world.tasks(workflow)[-1]


def test_a_retry_replaces_what_a_dead_attempt_published(world: RealWorld) -> None:
    workflow, abandoned = publish_and_die(world)
    outcome, delivered = world.attempt(world.job(write_new))
    assert isinstance(outcome, Completed)
    assert delivered is Reported.POSTED
    ref = outcome.output["workspace"]["ref"]
    assert ref != abandoned
    assert world.history()[:2] == [ref, world.ref]
    assert last_task(world, workflow)["status"] == "COMPLETED"
    assert abandoned in world.tags().values()
    world.assert_tidy()


def test_a_retry_that_changes_nothing_takes_the_dead_attempts_publication_back(
    world: RealWorld,
) -> None:
    _, abandoned = publish_and_die(world)
    outcome, _ = world.attempt(world.job(write_nothing))
    assert isinstance(outcome, Completed)
    assert outcome.output["workspace"]["ref"] == world.ref
    world.assert_untouched()
    assert abandoned in world.tags().values()


def test_a_retry_adopts_what_a_dead_attempt_published(world: RealWorld) -> None:
    workflow, published = publish_and_die(world, recovery="adopt")
    ran: list[bool] = []

    def body(workspace: Path, params: Params) -> Result:
        ran.append(True)
        return write_new(workspace, params)

    outcome, delivered = world.attempt(world.job(body, recovery="adopt"))
    assert isinstance(outcome, Completed)
    assert delivered is Reported.POSTED
    assert not ran
    assert outcome.output == {
        "workspace": world.workspace(ref=published),
        "result": {"note": "new"},
    }
    assert world.history()[0] == published
    assert last_task(world, workflow)["status"] == "COMPLETED"
    world.assert_tidy()


def test_a_rerun_with_other_params_is_never_adopted(world: RealWorld) -> None:
    workflow = world.start()
    first = world.claim()
    published = world.run(world.job(write_new, recovery="adopt"), first)
    assert isinstance(published, Completed)
    world.report(first, published)
    task_id = first.claim.attempt.task_id
    request = {
        "reRunFromWorkflowId": workflow,
        "reRunFromTaskId": task_id,
        "taskInput": {"workspace": world.workspace(), "params": {"text": "other"}},
    }
    world.operate("POST", f"/workflow/{workflow}/rerun", request)
    outcome, _ = world.attempt(world.job(write_new, recovery="adopt"))
    assert isinstance(outcome, Completed)
    assert outcome.output["result"] == {"note": "other"}
    assert world.contents()["data/a.txt"] == "other"
    assert world.history()[1] == world.ref


def test_an_old_execution_posts_nothing_over_the_claim_of_a_rerun(world: RealWorld) -> None:
    workflow = world.start()
    old = world.claim()
    task_id = old.claim.attempt.task_id
    world.operate("DELETE", f"/workflow/{workflow}")
    request = {"reRunFromWorkflowId": workflow, "reRunFromTaskId": task_id}
    world.operate("POST", f"/workflow/{workflow}/rerun", request)
    new = world.claim()
    assert new.claim.attempt.task_id == task_id

    stale = world.run(world.job(write_new), old)
    assert isinstance(stale, Failed)
    assert stale.reason.startswith("StaleAttemptError: ")
    assert world.report(old, stale) is Reported.STALE
    task = last_task(world, workflow)
    assert (task["status"], task["workerId"]) == ("IN_PROGRESS", new.claim.token)
    world.assert_untouched()

    live = world.run(world.job(write_new), new)
    assert isinstance(live, Completed)
    assert world.report(new, live) is Reported.POSTED


def test_a_later_attempts_publication_is_not_relocated_over(world: RealWorld) -> None:
    """A stale execution that all fences let through still sees who published HEAD."""
    workflow = world.start(responseTimeoutSeconds=LEASE_SECONDS)
    old = world.claim()
    time_out(world, workflow, old)
    later, _ = world.attempt(world.job(write_new))
    assert isinstance(later, Completed)

    class Blind:
        """A Conductor that answers the old execution as if nothing had happened."""

        def read(self, task_id: str) -> Any:
            from perago.protocol.ports import AttemptSnapshot

            attempt = old.claim.attempt
            return AttemptSnapshot(
                "IN_PROGRESS",
                attempt.workflow_instance_id,
                task_id,
                attempt.retry_count,
                old.claim.token,
                60,
            )

        def renew(self, claim: Any) -> None:
            return

        def has_ended_before(self, workflow_instance_id: str) -> bool:
            return False

    from dataclasses import replace

    from perago.protocol.identity import Execution
    from perago.protocol.run import run_attempt

    ports = replace(world.ports(), attempts=Blind())
    for body in (write_new, write_nothing):
        outcome = run_attempt(world.job(body), Execution(old.claim, "old"), old.payload, ports)
        assert isinstance(outcome, Failed)
        assert outcome.reason.startswith("PublishFenceError: ")
        assert "later attempt" in outcome.reason
    assert world.history()[0] == later.output["workspace"]["ref"]


class LateMerge:
    """A merge whose client gives up at once; LakeFS is asked for it some time later."""

    def __init__(self, lake: Lake, delay: float) -> None:
        self._lake = lake
        self._delay = delay
        self.thread: threading.Thread | None = None
        self.refused: BackendError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def merge(self, staged: StagedWorkspace, target: str, **options: Any) -> str:
        def later() -> None:
            time.sleep(self._delay)
            try:
                self._lake.merge(staged, target, **options)
            except BackendError as error:
                self.refused = error

        self.thread = threading.Thread(target=later)
        self.thread.start()
        raise LostReplyError("the reply was lost")


class LostReply:
    """A merge that LakeFS carries out and whose reply never comes."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def merge(self, staged: StagedWorkspace, target: str, **options: Any) -> str:
        self._lake.merge(staged, target, **options)
        raise LostReplyError("the reply was lost")


def test_a_merge_whose_reply_was_lost_and_that_landed_completes(world: RealWorld) -> None:
    workflow = world.start()
    outcome, _ = world.attempt(world.job(write_new), lake=LostReply(world.control))
    assert isinstance(outcome, Completed)
    assert world.history()[:2] == [outcome.output["workspace"]["ref"], world.ref]
    assert last_task(world, workflow)["status"] == "COMPLETED"
    world.assert_tidy()


def test_a_merge_that_arrives_after_its_client_gave_up_never_lands(world: RealWorld) -> None:
    """The client withdraws its licence, so that the request finds no source."""
    workflow = world.start()
    lake = LateMerge(world.control, delay=2.0)
    outcome, _ = world.attempt(world.job(write_new, landing_seconds=1.0), lake=lake)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("NotPublishedError: ")
    assert world.tasks(workflow)[0]["status"] == "FAILED"
    retry, _ = world.attempt(world.job(write_new))
    assert isinstance(retry, Completed)
    assert lake.thread is not None
    joined(lake.thread)
    assert isinstance(lake.refused, NotFoundError)
    assert world.history()[:2] == [retry.output["workspace"]["ref"], world.ref]
    world.assert_tidy()


@pytest.mark.parametrize("body", [write_new, write_nothing], ids=["changed", "no-op"])
def test_a_dead_executions_merge_never_lands_after_its_successor_completed(
    world: RealWorld, body: Body
) -> None:
    """A proxy holds the merge back, the worker is gone, and the retry completes meanwhile."""
    workflow = world.start(responseTimeoutSeconds=LEASE_SECONDS)
    delivery = world.claim()
    lake = LateMerge(world.control, delay=LEASE_SECONDS + 6.0)
    keeps = Interfering(lake, "delete_branch", before=die)
    world.run(world.job(write_new, landing_seconds=0.5), delivery, lake=keeps)
    assert len(world.branches()) == 2, "the dead execution's licence is still there"
    time_out(world, workflow, delivery)
    retry, _ = world.attempt(world.job(body, landing_seconds=0.5))
    assert isinstance(retry, Completed)
    assert lake.thread is not None
    joined(lake.thread)
    assert isinstance(lake.refused, NotFoundError)
    assert world.history()[0] == retry.output["workspace"]["ref"]
    world.assert_tidy()


def die() -> None:
    """The process is gone: what it would clean up stays."""
    raise BackendUnavailableError("the worker is dead")


def test_a_merge_that_was_refused_did_not_land(world: RealWorld) -> None:
    """Somebody's conflicting commit comes between the publish fence and the merge."""
    world.start()

    def slip_in() -> None:
        world.commit("main", {"data/a.txt": "conflict"})

    lake = Interfering(world.control, "merge", before=slip_in)
    outcome, _ = world.attempt(world.job(write_new), lake=lake)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("PublishFenceError: ")
    assert world.contents() == {**SEED, "data/a.txt": "conflict"}
    world.assert_tidy()


def test_a_redelivered_attempt_keeps_the_first_execution_out(world: RealWorld) -> None:
    """A requeue hands the same attempt out again: the claim token tells the two apart."""
    workflow = world.start()
    first = world.claim()
    in_progress = {
        "workflowInstanceId": workflow,
        "taskId": first.claim.attempt.task_id,
        "status": "IN_PROGRESS",
        "workerId": first.claim.token,
    }
    world.operate("POST", "/tasks", in_progress)
    second = world.claim()
    assert second.claim.attempt.task_id == first.claim.attempt.task_id

    stale = world.run(world.job(write_new), first)
    assert isinstance(stale, Failed)
    assert "claim is" in stale.reason
    assert world.report(first, stale) is Reported.STALE
    live = world.run(world.job(write_new), second)
    assert isinstance(live, Completed)
    assert world.report(second, live) is Reported.POSTED
    assert last_task(world, workflow)["status"] == "COMPLETED"
