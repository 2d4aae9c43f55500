"""``perago history``, ``restore`` and ``attempt show`` on real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.outcome import Completed
from perago.worker.report import report, task_log
from support.command_line import RunPerago
from support.real_world import Params, RealWorld, Result, write_new

pytestmark = pytest.mark.servers


def write_other(workspace: Path, params: Params) -> Result:
    """What a second execution makes of the same input."""
    (workspace / "a.txt").write_text("second")
    (workspace / "d.txt").write_text("delta")
    return Result()


def read(perago: RunPerago, *command: str) -> dict[str, Any]:
    done = perago(*command, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_replaced_publication_is_told_and_brought_back(
    world: RealWorld, perago: RunPerago
) -> None:
    """The log, the revert, the repeat and the merge of both are LakeFS's own."""
    world.start()
    delivery = world.claim()
    task_id = delivery.claim.attempt.task_id
    assert isinstance(world.run(world.job(write_new), delivery), Completed)
    abandoned, before = world.history()[0], world.contents()
    world.events.clear()
    # The claim runs once more, as after the death of an executor.
    outcome = world.run(world.job(write_other), delivery)
    assert isinstance(outcome, Completed)
    running = {it["task_id"]: it for it in read(perago, "watch")["attempts"]}
    assert running[task_id]["claim"] == delivery.claim.token
    replacement = world.history()[0]
    logs = task_log(world.events, outcome, "printed")
    report(world.conductor, delivery.claim, outcome, logs, seconds=20)

    document = read(perago, "history", world.repository)
    newest, lost, seed, _ = document["entries"]

    assert (document["branch"], document["head"]) == ("main", replacement)
    assert [newest["kind"], lost["kind"], seed["kind"]] == ["publication", "replaced", "person"]
    assert (newest["commit"], newest["replaces"]) == (replacement, [abandoned])
    assert (newest["record"]["task_id"], newest["record"]["prefix"]) == (task_id, "data")
    assert (newest["changed_objects"], lost["changed_objects"]) == (2, 3)
    assert (lost["commit"], lost["replaced_by"]) == (abandoned, replacement)
    assert f"in place of {abandoned[:12]}" in perago("history", world.repository, "main").out

    attempt = read(perago, "attempt", "show", task_id)

    assert attempt["status"] == "COMPLETED"
    assert attempt["claim"] == delivery.claim.token
    assert attempt["claimed"] <= attempt["ended"]
    assert attempt["task_output"] == "printed"
    assert [it["phase"] for it in attempt["phases"]][-1] == "publish"
    assert [it["passed"] for it in attempt["fences"]] == [True, True, True]
    made = {(it["where"], it["commit"]) for it in attempt["lakefs"]["commits"]}
    assert made == {("published", replacement), ("replaced", abandoned)}
    missing = perago("attempt", "show", "no-such-task")
    assert missing.code == 3
    assert "perago history REPOSITORY" in missing.err

    shown = perago("restore", world.repository, lost["tag"])

    assert shown.code == 0, shown.err
    assert "removed  data/d.txt" in shown.out
    assert "--yes" in shown.err
    assert world.history()[0] == replacement

    done = read(perago, "restore", world.repository, lost["tag"], "--yes")

    assert world.history()[:2] == [done["commit"], replacement]
    assert world.contents() == before
    restored = read(perago, "history", world.repository, "--limit", "1")["entries"][0]
    assert (restored["kind"], restored["tag"]) == ("restoration", lost["tag"])
    assert read(perago, "restore", world.repository, lost["tag"])["already"]
    world.assert_tidy()


def test_what_a_person_changed_since_is_not_overwritten(
    world: RealWorld, perago: RunPerago
) -> None:
    lost = world.commit("main", {"data/a.txt": "lost"})
    world.move(world.ref)
    tag = f"perago-replaced-20260301-{lost}"
    world.control.tag(world.repository, tag, lost)
    theirs = world.commit("main", {"data/a.txt": "a person's"})
    refused = perago("restore", world.repository, tag, "--yes")
    assert refused.code == 4
    assert "PRG-609" in refused.err
    assert world.history()[0] == theirs
    world.assert_tidy()
