"""Section 8: a retry takes over what its dead predecessor published, if everything fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, computed_field

from perago.errors import PublishFenceError, StaleAttemptError
from perago.masking import remember_secret
from perago.protocol.job import Job, Policy
from perago.testing import followed_by
from support.memory_world import REPOSITORY, Files, InMemoryWorld, Result, completed, failed, writes


class Ran(Exception):  # noqa: N818  an event, not an error
    """The body ran, so nothing was adopted."""


def first(world: InMemoryWorld, text: str = "the first") -> Job:
    def body(files: Files) -> Result:
        files["b"] = b"2"
        return Result(text=text)

    return world.job(body, recovery="adopt")


def must_not_run(world: InMemoryWorld, **job: Any) -> Job:
    def body(_: Files) -> None:
        raise Ran

    return world.job(body, recovery="adopt", **job)


def test_a_retry_completes_at_once_with_commit_and_result(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    head = world.head.id
    output = completed(world.run(must_not_run(world), retry))
    assert output["workspace"]["ref"] == world.head.id == head
    assert output["result"] == {"text": "the first"}
    assert world.tags == {}


def test_a_later_retry_finds_the_publication_of_an_earlier_one(world: InMemoryWorld) -> None:
    second = world.publish_and_die(first(world))
    world.clock.advance(60)
    world.conductor.decide(second.claim.attempt.workflow_instance_id)
    third = world.claim()
    assert third.claim.attempt.retry_count == 2
    completed(world.run(must_not_run(world), third))


def test_what_replaced_a_publication_can_be_adopted_too(world: InMemoryWorld) -> None:
    second = world.publish_and_die(world.job(writes(old=b"1")))
    third = world.publish_and_die(first(world, "the second"), second)
    output = completed(world.run(must_not_run(world), third))
    assert output["result"] == {"text": "the second"}


def test_adoption_passes_the_attempt_fence(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    workflow_id = retry.claim.attempt.workflow_instance_id
    end = followed_by(lambda: world.conductor.terminate(workflow_id))
    world.faults.inject("attempts.read", end)
    failed(world.run(must_not_run(world), retry), StaleAttemptError)


def test_a_first_attempt_adopts_nothing(world: InMemoryWorld) -> None:
    completed(world.run(first(world)))
    failed(world.run(must_not_run(world), world.deliver()), Ran)


def test_a_task_that_does_not_ask_for_it_adopts_nothing(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    output = completed(world.run(world.job(writes(new=b"1")), retry))
    assert output["result"] == {"text": "done"}
    assert "data/new" in world.contents()


def test_a_predecessor_that_recorded_no_result_is_replaced(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"2")))
    failed(world.run(must_not_run(world), retry), Ran)


def test_other_params_are_not_adopted(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    retry.payload["params"] = {"n": 2}
    failed(world.run(must_not_run(world), retry), Ran)


def test_another_input_is_not_adopted(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    retry.payload["workspace"]["ref"] = world.head.id
    failed(world.run(must_not_run(world), retry), Ran)


def test_another_logical_task_is_not_adopted(world: InMemoryWorld) -> None:
    completed(world.run(first(world)))
    delivery = world.deliver(reference_name="other")
    world.clock.advance(60)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_another_iteration_is_not_adopted(world: InMemoryWorld) -> None:
    completed(world.run(first(world)))
    delivery = world.deliver(iteration=2)
    world.clock.advance(60)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_a_commit_on_top_of_the_publication_prevents_adoption(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    world.commit({"data/person": b"1"})
    failed(world.run(must_not_run(world), retry), PublishFenceError)


def test_a_copied_record_on_top_of_the_publication_is_not_adopted(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(first(world))
    world.commit({"data/person": b"1"}, world.head.metadata)
    failed(world.run(must_not_run(world), retry), PublishFenceError)


@pytest.mark.parametrize(
    ("field", "value", "adopted"),
    [
        ("staging_commit", "0" * 64, True),
        ("ref", "0" * 64, False),
        ("params_hash", "0" * 64, False),
        ("workflow_instance_id", "other", False),
        ("reference_name", "other", False),
        ("iteration", "5", False),
        ("task_id", "other", False),
        ("retry_count", "5", False),
        ("claim", "other", False),
        ("result", '{"text": 5}', False),
    ],
)
def test_each_field_of_the_record_alone_prevents_adoption(
    world: InMemoryWorld, field: str, value: str, adopted: bool
) -> None:
    retry = world.publish_and_die(first(world))
    metadata = {**world.head.metadata, f"perago.{field}": value}
    world.lake.repository(REPOSITORY).branch("main").head = world.ref
    world.commit({"data/b": b"2"}, metadata)
    outcome = world.run(must_not_run(world), retry)
    if adopted:
        completed(outcome)
    else:
        failed(outcome, Ran)


def test_a_claim_that_conductor_gave_away_since_is_not_adopted(world: InMemoryWorld) -> None:
    """The predecessor was redelivered after it had published: its work may have been redone."""
    delivery = world.deliver()
    completed(world.run(first(world), delivery))
    world.conductor.requeue("task")
    world.claim()
    world.clock.advance(60)
    world.conductor.decide(delivery.claim.attempt.workflow_instance_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_a_rerun_is_never_adopted(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    attempt = delivery.claim.attempt
    completed(world.run(first(world), delivery))
    world.conductor.terminate(attempt.workflow_instance_id)
    world.conductor.rerun(attempt.workflow_instance_id, attempt.task_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_a_rerun_of_a_retry_does_the_work_again(world: InMemoryWorld) -> None:
    """It still names the predecessor it once retried, whose publication is still there."""
    retry = world.publish_and_die(first(world))
    attempt = retry.claim.attempt
    world.conductor.complete(retry.claim, world.run(must_not_run(world), retry), [])
    world.conductor.rerun(attempt.workflow_instance_id, attempt.task_id)
    again = world.claim()
    assert again.claim.attempt.retried_task_id == attempt.retried_task_id
    failed(world.run(must_not_run(world), again), Ran)


def test_a_retry_after_a_rerun_does_not_adopt_what_came_before_it(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    attempt = delivery.claim.attempt
    completed(world.run(first(world), delivery))
    world.conductor.terminate(attempt.workflow_instance_id)
    world.conductor.rerun(attempt.workflow_instance_id, attempt.task_id)
    world.claim()
    world.clock.advance(60)
    world.conductor.decide(attempt.workflow_instance_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_a_restart_is_never_adopted(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    attempt = delivery.claim.attempt
    completed(world.run(first(world), delivery))
    world.conductor.terminate(attempt.workflow_instance_id)
    world.conductor.restart(attempt.workflow_instance_id)
    world.claim()
    world.clock.advance(60)
    world.conductor.decide(attempt.workflow_instance_id)
    failed(world.run(must_not_run(world), world.claim()), Ran)


def test_a_result_that_does_not_fit_the_model_any_more_is_not_adopted(world: InMemoryWorld) -> None:
    class Newer(BaseModel):
        number: int

    retry = world.publish_and_die(first(world))
    failed(world.run(must_not_run(world, result_model=Newer), retry), Ran)


def test_a_result_that_is_too_large_is_published_but_not_recorded(world: InMemoryWorld) -> None:
    world.policy = Policy(max_recorded_result_bytes=100)
    retry = world.publish_and_die(first(world, "x" * 200))
    assert "larger" in world.told("result_not_recorded")[0]["reason"]
    failed(world.run(must_not_run(world), retry), Ran)


class Credentials(BaseModel):
    """A result with a secret in it."""

    token: SecretStr


class Nested(BaseModel):
    """A result with a secret further down."""

    inner: list[Credentials]


class Table(BaseModel):
    """A result with any texts in it, also as keys."""

    rows: list[dict[str, Any]]


class Computed(BaseModel):
    """A result whose secret is made when it is read."""

    @computed_field
    def token(self) -> SecretStr:
        return SecretStr("hunter2")


@pytest.mark.parametrize(
    "value",
    [
        Computed(),
        Credentials(token=SecretStr("hunter2")),
        Nested(inner=[Credentials(token=SecretStr("hunter2"))]),
    ],
    ids=["computed", "direct", "nested"],
)
def test_a_result_with_secret_fields_is_never_written_into_a_commit(
    world: InMemoryWorld, value: BaseModel
) -> None:
    def body(files: Files) -> BaseModel:
        files["b"] = b"2"
        return value

    job = world.job(body, recovery="adopt", result_model=type(value))
    retry = world.publish_and_die(job)
    assert "secret" in world.told("result_not_recorded")[0]["reason"]
    assert "perago.result" not in world.head.metadata
    assert "hunter2" not in repr(world.head) + repr(world.events)
    failed(world.run(must_not_run(world, result_model=type(value)), retry), Ran)


def test_a_result_is_recorded_only_where_adoption_is_asked_for(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(b=b"2"))))
    assert "perago.result" not in world.head.metadata


def test_a_secret_of_the_worker_reaches_neither_conductor_nor_a_commit(
    world: InMemoryWorld,
) -> None:
    remember_secret("key-in-a-result")

    def body(files: Files) -> Table:
        files["b"] = b"2"
        return Table(rows=[{"key-in-a-result": "holds key-in-a-result", "n": 3}])

    retry = world.publish_and_die(world.job(body, recovery="adopt", result_model=Table))
    (told,) = world.told("result_masked")
    assert "secret" in told["message"]
    assert "key-in-a-result" not in repr(world.head) + repr(world.events)
    adopted = completed(world.run(must_not_run(world, result_model=Table), retry))
    assert adopted["result"] == {"rows": [{"********": "holds ********", "n": 3}]}
    assert json.loads(world.head.metadata["perago.result"]) == adopted["result"]
