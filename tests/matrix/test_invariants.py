"""The judge of the matrices and of the soak: it must see what it exists for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perago.testing import HttpFault
from support.fault_matrix import Scene, scene
from support.real_world import Servers

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("fault-matrix")]


def one(wrong: list[str], pattern: str) -> None:
    assert len(wrong) == 1, wrong
    assert re.search(pattern, wrong[0])


def unpublish(stage: Scene) -> None:
    stage.world.move(stage.world.ref)


def land_late(stage: Scene) -> None:
    stage.world.commit("main", {"data/late.txt": "of another execution"})


def write_to_the_target(stage: Scene) -> None:
    stage.world.put("main", "data/a.txt", "not committed")


def test_a_good_workflow_has_no_violation_and_each_damage_is_seen(
    servers: Servers, tmp_path: Path
) -> None:
    """One workflow, damaged in turn: each damage is undone before the next."""
    with scene("file", servers, "", tmp_path) as stage:
        workflow, wrong = stage.run()
        assert wrong == []
        world, published = stage.world, stage.world.history()[0]

        land_late(stage)
        one(stage.judge(workflow), "HEAD is .* the last completed step put out")
        world.move(published)

        unpublish(stage)
        one(stage.judge(workflow), f"HEAD is {world.ref}")
        world.move(published)

        write_to_the_target(stage)
        one(stage.judge(workflow), "uncommitted changes")
        world.sdk.branches_api.reset_branch(world.repository, "main", {"type": "reset"})

        staging = f"perago-staging-{workflow}-step-seq-1"
        branch = {"name": staging, "source": world.ref}
        world.sdk.branches_api.create_branch(world.repository, branch)
        one(stage.judge(workflow), f"staging branch {staging} is left")
        world.sdk.branches_api.delete_branch(world.repository, staging)

        world.root.mkdir(exist_ok=True)
        (world.root / "forgotten").mkdir()
        one(stage.judge(workflow), "folder forgotten is left")
        (world.root / "forgotten").rmdir()

        stage.proxies["lakefs"].inject("GET", "/never", HttpFault.page())
        one(stage.judge(workflow), "never happened")
        stage.proxies["lakefs"].clear()
        assert stage.judge(workflow) == []


def test_a_mixture_of_two_results_is_seen(servers: Servers, tmp_path: Path) -> None:
    with scene("file", servers, "", tmp_path) as stage:
        workflow, wrong = stage.run()
        assert wrong == []
        world = stage.world
        [task] = world.tasks(workflow)
        token = task["outputData"]["result"]["note"]
        mixed = world.commit("main", {"data/by/other.txt": "of another execution"})
        check = stage.contents.check_tree
        assert check(world.repository, world.history()[1], {"note": token}) == []
        one(check(world.repository, mixed, {"note": token}), f"not the result {token}")


def test_a_workflow_that_failed_is_a_violation(servers: Servers, tmp_path: Path) -> None:
    with scene("file", servers, "", tmp_path) as stage:
        workflow = stage.world.start(retryCount=0)
        stage.world.operate("DELETE", f"/workflow/{workflow}")
        one(stage.judge(workflow), "the workflow is TERMINATED")
