"""Both columns of the publish table (protocol, section 7) on real servers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import lakefs_sdk
import pytest

from perago.lakefs.fence import ACTION_PATH
from perago.protocol.outcome import Completed, Failed
from perago.protocol.record import EXPECTED_HEAD
from support.real_world import SEED, Body, Params, RealWorld, Result, write_new, write_nothing

pytestmark = pytest.mark.servers

PUBLISHED = {**SEED, "data/a.txt": "new", "data/out/c.txt": "gamma"}
del PUBLISHED["data/sub/b.txt"]
BODIES = pytest.mark.parametrize("body", [write_new, write_nothing], ids=["changed", "no-op"])


def complete(world: RealWorld, body: Body, workflow: str | None = None) -> str:
    """Run one attempt that must complete; the output's ref."""
    workflow = workflow or world.start()
    outcome, _ = world.attempt(world.job(body))
    assert isinstance(outcome, Completed), outcome
    task = world.tasks(workflow)[0]
    assert task["status"] == "COMPLETED"
    output = task["outputData"]
    assert output["result"] == {"note": "new"}
    assert output["workspace"] == world.workspace(ref=output["workspace"]["ref"])
    world.assert_tidy()
    return str(output["workspace"]["ref"])


def fail_fenced(world: RealWorld, body: Body, reason: str, workflow: str | None = None) -> None:
    """Run one attempt that must fail at the publish fence and leave the target alone."""
    head, tree = world.history()[0], world.contents()
    workflow = workflow or world.start()
    outcome, _ = world.attempt(world.job(body))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("PublishFenceError: ")
    assert reason in outcome.reason
    assert world.tasks(workflow)[0]["status"] == "FAILED"
    assert (world.history()[0], world.contents()) == (head, tree)
    world.assert_tidy()


def test_at_the_input_a_change_is_merged_as_one_commit_on_it(world: RealWorld) -> None:
    ref = complete(world, write_new)
    assert world.history()[:2] == [ref, world.ref]
    assert world.contents() == PUBLISHED
    commit = world.control.get_commit(world.repository, ref)
    assert commit.parents == (world.ref,)
    assert commit.metadata[EXPECTED_HEAD] == world.ref


def test_at_the_input_no_change_completes_with_the_input(world: RealWorld) -> None:
    assert complete(world, write_nothing) == world.ref
    world.assert_untouched()


def test_an_abandoned_publication_is_replaced(world: RealWorld) -> None:
    workflow, abandoned = world.abandon({"data/a.txt": "abandoned", "data/left.txt": "over"})
    ref = complete(world, write_new, workflow)
    assert world.history()[:2] == [ref, world.ref]
    assert abandoned not in world.history()
    assert world.contents() == PUBLISHED
    assert abandoned in world.tags().values()


def test_over_an_abandoned_publication_no_change_returns_to_the_input(world: RealWorld) -> None:
    workflow, abandoned = world.abandon({"data/a.txt": "abandoned"})
    assert complete(world, write_nothing, workflow) == world.ref
    world.assert_untouched()
    assert abandoned in world.tags().values()


def test_replacing_the_same_commit_twice_is_fine(world: RealWorld) -> None:
    """The tag is there already."""
    world.policy = replace(world.policy, replacement="head-state")
    abandoned = world.commit("main", {"data/a.txt": "abandoned"})
    complete(world, write_nothing)
    world.move(abandoned)
    complete(world, write_nothing)
    assert list(world.tags().values()) == [abandoned]


@BODIES
def test_a_target_two_commits_on_is_fenced(world: RealWorld, body: Body) -> None:
    world.commit("main", {"data/a.txt": "one"})
    world.commit("main", {"data/a.txt": "two"})
    fail_fenced(world, body, "neither at the input")


@BODIES
def test_a_target_on_another_history_is_fenced(world: RealWorld, body: Body) -> None:
    first = world.history()[-1]
    world.move(first)
    fail_fenced(world, body, "neither at the input")


@BODIES
def test_a_target_that_is_gone_fails_and_is_not_made_anew(world: RealWorld, body: Body) -> None:
    world.start({"workspace": world.workspace(branch="gone"), "params": {}})
    outcome, _ = world.attempt(world.job(body))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("InputError: ")
    world.assert_untouched()
    world.assert_tidy()


@BODIES
def test_uncommitted_changes_on_an_abandoned_target_are_never_dropped(
    world: RealWorld, body: Body
) -> None:
    workflow, _ = world.abandon({"data/a.txt": "abandoned"})
    world.put("main", "data/precious.txt", "not committed")
    fail_fenced(world, body, "uncommitted changes", workflow)
    assert world.contents()["data/precious.txt"] == "not committed"


def test_uncommitted_changes_on_a_target_at_the_input_refuse_the_merge(world: RealWorld) -> None:
    world.put("main", "data/precious.txt", "not committed")
    fail_fenced(world, write_new, "uncommitted changes")
    assert world.contents()["data/precious.txt"] == "not committed"


def protect(world: RealWorld) -> None:
    rule = lakefs_sdk.BranchProtectionRule(pattern="main")
    world.sdk.repositories_api.set_branch_protection_rules(world.repository, [rule])
    head = world.history()[0]
    for _ in range(100):  # LakeFS keeps the rules it knew for some seconds
        try:
            world.move(head)
        except lakefs_sdk.exceptions.ForbiddenException:
            return
        time.sleep(0.1)
    raise AssertionError("the branch protection does not come into force")


def test_a_protected_target_takes_the_merge(world: RealWorld) -> None:
    protect(world)
    complete(world, write_new)
    assert world.contents() == PUBLISHED


@BODIES
def test_a_protected_target_refuses_the_relocation_and_the_error_says_the_way_out(
    world: RealWorld, body: Body
) -> None:
    workflow, _ = world.abandon({"data/a.txt": "abandoned"})
    protect(world)
    fail_fenced(world, body, "refuses to relocate", workflow)


@BODIES
def test_a_head_that_changes_lakefs_actions_is_never_relocated_over(
    world: RealWorld, body: Body
) -> None:
    workflow, _ = world.abandon(
        {"_lakefs_actions/mine.yaml": "name: mine\non:\n  pre-merge:\nhooks: []\n"}
    )
    fail_fenced(world, body, "_lakefs_actions/", workflow)


@BODIES
def test_a_persons_commit_is_left_alone_and_named(world: RealWorld, body: Body) -> None:
    world.commit("main", {"data/a.txt": "by a person"})
    fail_fenced(world, body, "is a commit by 'admin', 'by hand', made at ")


def test_by_head_state_a_persons_commit_is_replaced_but_kept_under_a_tag(world: RealWorld) -> None:
    world.policy = replace(world.policy, replacement="head-state")
    by_hand = world.commit("main", {"data/a.txt": "by a person"})
    complete(world, write_new)
    [(tag, commit)] = world.tags().items()
    assert commit == by_hand
    assert tag.startswith("perago-replaced-")
    assert world.contents(by_hand)["data/a.txt"] == "by a person"


@pytest.mark.parametrize("prefix", ["", "data"])
def test_objects_outside_the_prefix_and_untouched_ones_keep_everything(
    world: RealWorld, prefix: str
) -> None:
    def touch_one(workspace: Path, params: Params) -> Result:
        folder = workspace if prefix else workspace / "data"
        (folder / "a.txt").write_text("changed")
        return Result(note="new")

    before = {o.key: o for o in world.objects.list(world.repository, world.ref, "")}
    world.start()
    outcome, _ = world.attempt(world.job(touch_one, prefix=prefix))
    assert isinstance(outcome, Completed)
    after = {o.key: o for o in world.objects.list(world.repository, "main", "")}
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed == {"data/a.txt"}


def test_the_hard_fence_must_be_in_the_input_commit(world: RealWorld) -> None:
    world.policy = replace(world.policy, publish_fence="hard")
    ran: list[bool] = []

    def body(workspace: Path, params: Params) -> Result:
        ran.append(True)
        return Result()

    world.start()
    outcome, _ = world.attempt(world.job(body))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("PublishFenceError: ")
    assert "perago fence install" in str(outcome.hint)
    assert not ran
    world.assert_untouched()


def test_with_the_hard_fence_a_publication_goes_through(world: RealWorld) -> None:
    world.policy = replace(world.policy, publish_fence="hard")
    world.install_fence()
    complete(world, write_new)
    assert world.contents() == PUBLISHED
    keys = {o.key for o in world.objects.list(world.repository, "main", "")}
    assert ACTION_PATH in keys
