"""Section 7: moving a target that is one commit past the input, with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from perago.errors import (
    BackendUnavailableError,
    InputError,
    MixedPublicationError,
    PublishFenceError,
    StaleAttemptError,
)
from perago.lakefs.fence import ACTION_PATH
from perago.protocol.job import Policy
from perago.protocol.outcome import Failed
from perago.protocol.provenance import assert_replaceable
from perago.testing import fails, followed_by, preceded_by
from support.memory_world import REPOSITORY, InMemoryWorld, completed, failed, nothing, writes

Body = Callable[[dict[str, bytes]], None]


def test_an_abandoned_publication_is_replaced_and_no_ancestor(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    output = completed(world.run(world.job(writes(new=b"new")), retry))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    assert world.contents() == {"data/a": b"1", "data/new": b"new", "other/x": b"x"}
    assert list(world.tags.values()) == [abandoned]
    assert list(world.tags) == [f"perago-replaced-{world.clock.today()}-{abandoned}"]
    assert world.staging_branches == []


def test_an_abandoned_publication_is_taken_back_by_a_no_op(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    output = completed(world.run(world.job(nothing), retry))
    assert output["workspace"]["ref"] == world.head.id == world.ref
    assert list(world.tags.values()) == [abandoned]


def test_by_head_state_a_foreign_commit_is_replaced_but_stays_reachable_by_its_tag(
    world: InMemoryWorld,
) -> None:
    world.policy = Policy(replacement="head-state")
    foreign = world.commit({"data/a": b"a person"}).id
    completed(world.run(world.job(writes(b=b"2"))))
    assert world.contents()["data/a"] == b"1"
    assert list(world.tags.values()) == [foreign]


def test_a_persons_commit_is_not_replaced_and_nothing_is_downloaded(world: InMemoryWorld) -> None:
    foreign = world.commit({"data/a": b"a person"}).id
    for body in (nothing, writes(b=b"2")):
        reason = failed(world.run(world.job(body)), PublishFenceError)
        assert "not by this task: start a new workflow from HEAD" in reason
    assert world.head.id == foreign
    assert world.tags == {}
    assert "download" not in world.phases()


def test_a_persons_commit_that_comes_during_the_body_is_not_replaced(world: InMemoryWorld) -> None:
    """Nobody published before: the person's commit sits where an abandoned one would."""
    for body in (nothing, writes(b=b"2")):
        world.lake.repository(REPOSITORY).branch("main").head = world.ref

        def commit_and(files: dict[str, bytes], then: Body = body) -> None:
            world.commit({"data/theirs": b"1"})
            then(files)

        failed(world.run(world.job(commit_and)), PublishFenceError)
        assert world.contents()["data/theirs"] == b"1"


def test_off_replaces_nothing_not_even_the_own_task(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    head, world.policy = world.head.id, Policy(replacement="off")
    assert "replacement is off" in failed(world.run(world.job(nothing), retry), PublishFenceError)
    assert world.head.id == head


def test_a_missing_target_branch_is_an_input_error_before_anything_is_downloaded(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver(world.payload(branch="nowhere"))
    assert "no branch 'nowhere'" in failed(world.run(world.job(), delivery), InputError)
    assert "download" not in world.phases()


def test_a_replacement_is_reported_with_the_tag_that_keeps_the_commit(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    completed(world.run(world.job(writes(new=b"new")), retry))
    (told,) = world.told("publication_replaced")
    assert told["abandoned"] == abandoned
    assert told["tag"] in world.tags


def test_a_step_mapped_to_the_wrong_input_is_told_which_output_to_take(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    completed(world.run(world.job(writes(old=b"old")), delivery))
    attempt = replace(delivery.claim.attempt, reference_name="report", task_id="task-99")
    with pytest.raises(PublishFenceError, match=r"give this step \$\{step.output.workspace\}"):
        assert_replaceable(world.head, attempt, "provenance")


def test_with_provenance_the_own_task_is_replaced(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    completed(world.run(world.job(writes(new=b"new")), retry))
    assert "data/new" in world.contents()


def test_with_provenance_another_logical_task_is_not_replaced(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(old=b"old"))))
    head = world.head.id
    other = world.deliver(reference_name="other_step")
    failed(world.run(world.job(writes(new=b"new")), other), PublishFenceError)
    assert world.head.id == head


@pytest.mark.parametrize("replacement", ["head-state", "provenance"])
def test_a_later_attempts_publication_is_never_relocated_over(
    world: InMemoryWorld, replacement: str
) -> None:
    """The old attempt comes back to life: its fence is made to pass, the record still vetoes."""
    world.policy = Policy(replacement=replacement)  # type: ignore[arg-type]
    old = world.deliver()
    world.clock.advance(60)
    world.conductor.decide(old.claim.attempt.workflow_instance_id)
    later = world.claim()
    completed(world.run(world.job(writes(later=b"1")), later))
    head = world.head.id
    task = world.conductor.workflow(old.claim.attempt.workflow_instance_id).tasks[0]
    task.status = "IN_PROGRESS"
    for body in (nothing, writes(old=b"1")):
        reason = failed(world.run(world.job(body), old), PublishFenceError)
        assert "later attempt" in reason
    assert world.head.id == head


def test_a_rerun_of_the_same_task_id_counts_as_later(world: InMemoryWorld) -> None:
    old = world.deliver()
    attempt = old.claim.attempt
    world.conductor.terminate(attempt.workflow_instance_id)
    world.conductor.rerun(attempt.workflow_instance_id, attempt.task_id)
    completed(world.run(world.job(writes(later=b"1")), world.claim()))
    head = world.head.id
    task = world.conductor.workflow(attempt.workflow_instance_id).tasks[0]
    task.status, task.worker_id = "IN_PROGRESS", old.claim.token
    assert "later attempt" in failed(world.run(world.job(nothing), old), PublishFenceError)
    assert world.head.id == head


def test_a_rerun_replaces_what_its_first_run_published(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    attempt = delivery.claim.attempt
    completed(world.run(world.job(writes(old=b"1")), delivery))
    world.conductor.terminate(attempt.workflow_instance_id)
    world.conductor.rerun(attempt.workflow_instance_id, attempt.task_id)
    completed(world.run(world.job(writes(new=b"1")), world.claim()))
    assert "data/new" in world.contents()
    assert "data/old" not in world.contents()


@pytest.mark.parametrize("body", [nothing, writes(b=b"2")], ids=["unchanged", "changed"])
def test_a_head_that_changes_actions_is_never_relocated_over(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None]
) -> None:
    delivery = world.deliver()
    head = world.abandon({ACTION_PATH: b"on: pre-merge"}, delivery).id
    assert "_lakefs_actions" in failed(world.run(world.job(body), delivery), PublishFenceError)
    assert world.head.id == head


@pytest.mark.parametrize("body", [nothing, writes(b=b"2")], ids=["unchanged", "changed"])
def test_a_protected_target_refuses_the_relocation_and_says_what_to_do(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None]
) -> None:
    delivery = world.deliver()
    head = world.abandon({"data/a": b"2"}, delivery).id
    world.lake.repository(REPOSITORY).protected.append("main")
    outcome = world.run(world.job(body), delivery)
    failed(outcome, PublishFenceError)
    assert isinstance(outcome, Failed)
    assert "A protected branch takes merges" in (outcome.hint or "")
    assert world.head.id == head


def test_the_fence_is_asked_once_more_between_tag_and_relocation(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    workflow_id = retry.claim.attempt.workflow_instance_id
    world.faults.inject("lake.tag", followed_by(lambda: world.conductor.terminate(workflow_id)))
    failed(world.run(world.job(writes(new=b"new")), retry), StaleAttemptError)
    assert world.head.id == abandoned
    assert "lake.relocate" not in world.faults.calls
    assert list(world.tags.values()) == [abandoned]


def test_without_a_tag_there_is_no_relocation(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    world.faults.inject("lake.tag", fails(BackendUnavailableError("down")))
    failed(world.run(world.job(writes(new=b"new")), retry), BackendUnavailableError)
    assert world.head.id == abandoned


def test_a_relocation_that_somebody_overtook_is_detected(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    overtake = followed_by(lambda: world.commit({"data/other": b"theirs"}))
    world.faults.inject("lake.relocate", overtake)
    failed(world.run(world.job(writes(new=b"new")), retry), MixedPublicationError)
    assert len(world.staging_branches) == 1


def test_a_relocation_that_somebody_took_back_is_detected(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(old=b"old")))
    abandoned = world.head.id
    branch = world.lake.repository(REPOSITORY).branch("main")
    take_back = followed_by(lambda: setattr(branch, "head", abandoned))
    world.faults.inject("lake.relocate", take_back)
    failed(world.run(world.job(writes(new=b"new")), retry), MixedPublicationError)


def test_a_replacement_that_does_not_sit_on_the_input_is_detected(world: InMemoryWorld) -> None:
    """Somebody wrote to the staging branch of this execution."""
    retry = world.publish_and_die(world.job(writes(old=b"old")))

    def meddle() -> None:
        (branch,) = world.staging_branches
        world.lake.write_and_commit(REPOSITORY, branch, {"data/meddled": b"1"})

    world.faults.inject("objects.write", preceded_by(meddle))
    failed(world.run(world.job(writes(new=b"new")), retry), MixedPublicationError)
    assert len(world.staging_branches) == 1
