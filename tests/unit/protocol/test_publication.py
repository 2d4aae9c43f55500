"""Section 7: the publish table, relocation with care, and both fences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from perago.errors import (
    MixedPublicationError,
    PublishFenceError,
    StaleAttemptError,
    UnknownOutcomeError,
)
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.protocol.job import Policy
from perago.protocol.record import (
    EXPECTED_HEAD,
    RECORD_VERSION,
    STAGING_COMMIT,
    hash_params,
    read_record,
)
from perago.testing import followed_by, preceded_by
from perago.testing.repository import StoredObject
from support.memory_world import (
    REPOSITORY,
    TASK,
    Files,
    InMemoryWorld,
    Params,
    Result,
    completed,
    failed,
    nothing,
    writes,
)


def test_at_the_input_a_change_is_merged_as_one_commit(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    output = completed(world.run(world.job(writes(b=b"2")), delivery))
    assert output["workspace"]["ref"] == world.head.id
    assert world.head.parents == (world.ref,)
    record = read_record(world.head)
    assert record is not None
    assert record.logical == delivery.claim.attempt.logical
    assert record.claim == delivery.claim.token
    assert world.head.metadata[EXPECTED_HEAD] == world.ref
    assert world.told("publish_planned")[-1]["plan"] == "MergeStaged"


def test_a_publication_says_for_its_history_what_made_it(world: InMemoryWorld) -> None:
    def body(files: Files) -> None:
        files["b"] = b"2"

    job = world.job(body)
    assert job.workspace is not None
    counted = replace(job.workspace, pre_guardrails=2, post_guardrails=1)
    completed(world.run(replace(job, workspace=counted, code_fingerprint="f", perago_version="1")))
    record = read_record(world.head)
    assert record is not None
    assert record.record_version == RECORD_VERSION
    assert (record.task_name, record.branch, record.prefix) == (TASK, "main", "data")
    assert (record.pre_guardrails, record.post_guardrails) == (2, 1)
    assert (record.code_fingerprint, record.perago_version) == ("f", "1")
    assert record.params == '{"n":1}'
    # The staged commit is what a replacement publishes: it says the same.
    staged = world.lake.get_commit(REPOSITORY, world.head.metadata[STAGING_COMMIT])
    assert read_record(staged) == record


def test_what_a_body_does_to_its_params_is_not_recorded(world: InMemoryWorld) -> None:
    def run(data: Path, params: Params) -> Result:
        world.workspaces.files_at(data)["b"] = b"2"
        params.n = 99
        return Result()

    completed(world.run(replace(world.job(nothing), body=run)))
    record = read_record(world.head)
    assert record is not None
    assert record.params == '{"n":1}'


class SecretParams(BaseModel):
    """Params with a secret further down."""

    n: int = 0
    login: list[SecretStr] = []


def test_of_params_with_secret_fields_only_the_hash_is_recorded(world: InMemoryWorld) -> None:
    payload = world.payload()
    payload["params"] = {"n": 1, "login": ["hunter2"]}
    job = replace(world.job(writes(b=b"2")), params_model=SecretParams)
    completed(world.run(job, world.deliver(payload)))
    record = read_record(world.head)
    assert record is not None
    assert record.params is None
    assert record.params_hash == hash_params(payload["params"])
    assert "hunter2" not in repr(world.head) + repr(world.events)


def test_at_the_input_no_change_completes_without_staging(world: InMemoryWorld) -> None:
    output = completed(world.run(world.job(nothing)))
    assert output["workspace"]["ref"] == world.head.id == world.ref
    assert not {"lake.create_branch", "lake.merge", "lake.relocate"} & set(world.faults.calls)


@pytest.mark.parametrize("body", [nothing, writes(b=b"2")], ids=["unchanged", "changed"])
def test_any_other_head_fails_and_is_not_moved(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None]
) -> None:
    world.commit({"data/a": b"2"})
    head = world.commit({"data/a": b"3"}).id
    failed(world.run(world.job(body)), PublishFenceError)
    assert world.head.id == head
    assert world.tags == {}
    assert world.staging_branches == []


@pytest.mark.parametrize("body", [nothing, writes(b=b"2")], ids=["unchanged", "changed"])
def test_a_head_behind_the_input_fails(
    world: InMemoryWorld, body: Callable[[dict[str, bytes]], None]
) -> None:
    older = world.ref
    world.ref = world.commit({"data/a": b"2"}).id
    world.lake.repository(REPOSITORY).branch("main").head = older
    failed(world.run(world.job(body)), PublishFenceError)
    assert world.head.id == older


@pytest.mark.parametrize("moved", [False, True], ids=["merge", "relocation"])
def test_a_dirty_target_is_left_alone(world: InMemoryWorld, moved: bool) -> None:
    delivery = world.deliver()
    if moved:
        world.abandon({"data/a": b"2"}, delivery)
    head = world.head.id
    target = world.lake.repository(REPOSITORY).branch("main")
    target.uncommitted["data/person"] = StoredObject(b"typing")
    assert "uncommitted" in failed(
        world.run(world.job(writes(b=b"2")), delivery), PublishFenceError
    )
    assert world.head.id == head
    assert world.contents()["data/person"] == b"typing"
    assert not {"lake.merge", "lake.relocate"} & set(world.faults.calls)


def test_a_protected_target_takes_the_merge(world: InMemoryWorld) -> None:
    world.lake.repository(REPOSITORY).protected.append("main")
    completed(world.run(world.job(writes(b=b"2"))))
    assert "data/b" in world.contents()


def test_a_merge_that_raced_another_one_is_detected_and_kept_as_evidence(
    world: InMemoryWorld,
) -> None:
    somebody = preceded_by(lambda: world.commit({"data/other": b"theirs"}))
    world.faults.inject("lake.merge", somebody)
    failed(world.run(world.job(writes(b=b"2"))), MixedPublicationError)
    assert len(world.staging_branches) == 1
    assert world.told("staging_branch_kept")


def test_a_conflicting_race_is_a_fence_error(world: InMemoryWorld) -> None:
    somebody = preceded_by(lambda: world.commit({"data/b": b"theirs"}))
    world.faults.inject("lake.merge", somebody)
    failed(world.run(world.job(writes(b=b"2"))), PublishFenceError)
    assert world.contents()["data/b"] == b"theirs"
    assert world.staging_branches == []


def test_with_the_hard_fence_the_race_is_refused_by_the_server(world: InMemoryWorld) -> None:
    world.policy = Policy(publish_fence="hard")
    world.ref = world.commit({ACTION_PATH: ACTION_TEXT.encode()}).id
    somebody = preceded_by(lambda: world.commit({"data/other": b"theirs"}))
    world.faults.inject("lake.merge", somebody)
    failed(world.run(world.job(writes(b=b"2"))), PublishFenceError)
    assert "data/b" not in world.contents()
    assert world.staging_branches == []


def test_the_hook_works_whenever_it_is_there_also_when_not_asked_for(world: InMemoryWorld) -> None:
    world.ref = world.commit({ACTION_PATH: ACTION_TEXT.encode()}).id
    somebody = preceded_by(lambda: world.commit({"data/other": b"theirs"}))
    world.faults.inject("lake.merge", somebody)
    failed(world.run(world.job(writes(b=b"2"))), PublishFenceError)
    assert "data/b" not in world.contents()


@pytest.mark.parametrize("call", ["lake.merge", "lake.relocate"])
def test_a_publication_that_cannot_be_read_back_keeps_its_evidence(
    world: InMemoryWorld, call: str
) -> None:
    delivery = world.deliver()
    if call == "lake.relocate":
        delivery = world.publish_and_die(world.job(writes(old=b"old")), delivery)
    down = world.faults.outage("lake")
    world.faults.inject(call, followed_by(down.__enter__))
    failed(world.run(world.job(writes(b=b"2")), delivery), UnknownOutcomeError)
    assert len(world.staging_branches) == 1
    assert "data/b" in world.contents()


def test_too_little_lease_for_a_merge_is_stale(world: InMemoryWorld) -> None:
    use_up = preceded_by(lambda: world.clock.advance(59.9))
    world.faults.inject("lake.has_uncommitted_changes", use_up)
    assert "lease" in failed(world.run(world.job(writes(b=b"2"))), StaleAttemptError)
    assert world.head.id == world.ref
    assert "lake.merge" not in world.faults.calls


def test_the_lease_is_renewed_at_every_fence(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(b=b"2"))))
    assert world.faults.calls.count("attempts.renew") == 2


def test_a_renewal_that_came_too_late_is_no_lease(world: InMemoryWorld) -> None:
    """Conductor answers a renewal of a finished attempt as if nothing were wrong."""
    delivery = world.deliver()
    workflow_id = delivery.claim.attempt.workflow_instance_id
    end = preceded_by(lambda: world.conductor.terminate(workflow_id))
    world.faults.inject("attempts.renew", end, skip=1)
    failed(world.run(world.job(writes(b=b"2")), delivery), StaleAttemptError)
    assert world.head.id == world.ref
