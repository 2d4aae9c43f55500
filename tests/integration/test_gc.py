"""``perago gc`` on real servers."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import lakefs_sdk
import pytest

from perago.errors import Disposition
from perago.lakefs.garbage import LakeFSGarbage
from perago.operations.gc import GarbageItem, collect
from perago.protocol.garbage import Verdict
from perago.protocol.identity import Execution
from perago.protocol.outcome import Completed, Failed
from perago.protocol.ports import Delivery
from perago.protocol.record import Record
from perago.protocol.workspace import StagingBranch
from support.command_line import RunPerago
from support.real_world import RealWorld

pytestmark = pytest.mark.servers


def stage(world: RealWorld, delivery: Delivery, *, committed: bool = True) -> str:
    """Leave a staging branch, as an execution does that is killed; its name."""
    execution = Execution(delivery.claim, uuid.uuid4().hex)
    staging = StagingBranch(world.repository, execution.staging_branch_name)
    world.control.create_branch(staging, world.ref)
    world.put(staging.branch, "data/new.txt", "new")
    if committed:
        record = Record.of(execution, ref=world.ref, params={})
        world.control.commit(staging, "staged", record.metadata())
    return staging.branch


def claim_new(world: RealWorld) -> tuple[str, Delivery]:
    workflow = world.start()
    return workflow, world.claim()


def items_of(perago: RunPerago, world: RealWorld, *args: str) -> dict[str, dict[str, Any]]:
    done = perago("gc", "--repository", world.repository, "--json", *args)
    assert done.code == 0, done.err
    return {item["name"]: item for item in json.loads(done.out)["items"]}


def test_only_branches_of_attempts_that_are_over_are_deleted(
    world: RealWorld, perago: RunPerago
) -> None:
    _, delivery = claim_new(world)
    live = {stage(world, delivery), stage(world, delivery, committed=False)}
    _, delivery = claim_new(world)
    over = {stage(world, delivery), stage(world, delivery, committed=False)}
    world.report(delivery, Completed({}))
    workflow, delivery = claim_new(world)
    over.add(stage(world, delivery))
    world.operate("DELETE", f"/workflow/{workflow}/remove?archiveWorkflow=false")
    foreign = {"main", "perago-staging-of-a-person", "feature"}
    for name in foreign - {"main"}:
        world.control.create_branch(StagingBranch(world.repository, name), world.ref)

    listed = items_of(perago, world)

    assert {name for name, item in listed.items() if item["garbage"]} == over
    assert set(listed) == over | live
    assert world.branches() == over | live | foreign

    deleted = items_of(perago, world, "--yes")

    assert {name for name, item in deleted.items() if item["removal"] == "deleted"} == over
    assert world.branches() == live | foreign


def test_the_branch_of_an_execution_before_a_rerun_is_garbage(
    world: RealWorld, perago: RunPerago
) -> None:
    workflow, delivery = claim_new(world)
    before = stage(world, delivery)
    world.report(delivery, Failed(Disposition.TERMINAL, "Stopped: by a test", None, None, ""))
    world.operate(
        "POST", f"/workflow/{workflow}/rerun", {"reRunFromTaskId": delivery.claim.attempt.task_id}
    )
    again = world.claim()
    assert again.claim.attempt.task_id == delivery.claim.attempt.task_id
    after = stage(world, again)

    deleted = items_of(perago, world, "--yes")

    assert deleted[before]["reason"].startswith("its attempt runs again under another claim")
    assert world.branches() == {"main", after}


def test_evidence_of_an_unknown_outcome_is_listed_with_its_age_and_kept(
    world: RealWorld, perago: RunPerago
) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    reason = "UnknownOutcomeError: the reply was lost"
    world.report(delivery, Failed(Disposition.TERMINAL, reason, "PRG-503", None, ""))

    listed = items_of(perago, world, "--yes")

    assert listed[branch]["reason"].startswith("evidence of an unknown outcome, 0 hours old")
    assert branch in world.branches()


def test_tags_of_replaced_commits_are_deleted_after_seven_days(
    world: RealWorld, perago: RunPerago
) -> None:
    today = datetime.now(UTC)
    names = {
        days: f"perago-replaced-{(today - timedelta(days=days)):%Y%m%d}-{world.ref}"
        for days in (0, 6, 9)
    }
    foreign = "perago-replaced-long-ago"
    for name in (*names.values(), foreign):
        world.control.tag(world.repository, name, world.ref)

    listed = items_of(perago, world, "--yes")

    assert set(listed) == set(names.values())
    assert set(world.tags()) == {names[0], names[6], foreign}


def test_the_text_says_what_would_go_and_why(world: RealWorld, perago: RunPerago) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    world.report(delivery, Completed({}))

    done = perago("gc", "--repository", world.repository)

    assert done.code == 0
    assert done.out.startswith(f"would delete: branch {branch} of {world.repository}: ")
    assert "its attempt is over: COMPLETED; committed 0 hours ago" in done.out
    assert "--yes" in done.err


def test_without_a_repository_every_repository_is_looked_into(
    world: RealWorld, perago: RunPerago
) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    done = perago("gc", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["items"]
    assert (world.repository, branch) in {(item["repository"], item["name"]) for item in found}


@pytest.mark.parametrize("answers", ["nobody", "another server"])
def test_nothing_is_deleted_when_conductor_cannot_be_asked(
    world: RealWorld, perago: RunPerago, answers: str
) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    world.report(delivery, Completed({}))
    lakefs = world.servers.connection.server
    url = "http://127.0.0.1:1/api" if answers == "nobody" else lakefs

    done = perago("gc", "--repository", world.repository, "--yes", CONDUCTOR_SERVER_URL=url)

    assert done.code == 3
    assert "Conductor" in done.err
    assert "Traceback" not in done.err
    assert branch in world.branches()


def test_a_repository_that_is_not_there_is_reported_and_the_others_are_collected(
    world: RealWorld, perago: RunPerago
) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    world.report(delivery, Completed({}))

    done = perago("gc", "--repository", "no-such-repo", "--repository", world.repository, "--yes")

    assert done.code == 3
    assert "no-such-repo" in done.err
    assert branch not in world.branches()


def test_what_moved_or_vanished_meanwhile_is_fine(world: RealWorld) -> None:
    _, delivery = claim_new(world)
    branches = moved, gone, stays = [stage(world, delivery) for _ in range(3)]
    heads = {name: world.control.get_head(world.repository, name).id for name in branches}
    garbage = Verdict(True, "a test says so")
    items = [
        GarbageItem("branch", world.repository, name, heads[name], garbage) for name in branches
    ]
    world.commit(moved, {"data/more.txt": "more"})
    world.control.delete_branch(StagingBranch(world.repository, gone))

    with closing(LakeFSGarbage(world.servers.connection)) as lake:
        removed = {entry.item.name: entry.removal for entry in collect(lake, items)}

    assert removed == {moved: "moved", gone: "gone", stays: "deleted"}
    assert world.branches() == {"main", moved}


def test_a_deletion_that_fails_is_reported_and_the_others_go_on(
    world: RealWorld, perago: RunPerago
) -> None:
    _, delivery = claim_new(world)
    branch = stage(world, delivery)
    world.report(delivery, Completed({}))
    frozen = f"frozen-{uuid.uuid4().hex[:12]}"
    world.sdk.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(
            name=frozen, storage_namespace=f"local://{frozen}", read_only=True
        )
    )
    creation = lakefs_sdk.BranchCreation(name=branch, source="main", force=True)
    world.sdk.branches_api.create_branch(frozen, creation)

    done = perago("gc", "--repository", frozen, "--repository", world.repository, "--yes", "--json")

    assert done.code == 3
    items = {item["repository"]: item for item in json.loads(done.out)["items"]}
    assert items[frozen]["removal"] == "failed"
    assert "read-only" in items[frozen]["error"]
    assert items[world.repository]["removal"] == "deleted"
