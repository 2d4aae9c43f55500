"""What changed since a task last published: others' changes, and never its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from perago.errors import BackendUnavailableError, InputError, UnsupportedOperationError
from perago.protocol import last_seen
from perago.testing import fails
from perago.testing.spark import InMemorySparkWorkspace
from support.memory_world import REPOSITORY, InMemoryWorld, completed, failed

Changes = dict[str, str] | None
Body = Callable[[InMemorySparkWorkspace], Any]


def write_b(workspace: InMemorySparkWorkspace) -> None:
    workspace.write("b", b"2")


def run(world: InMemoryWorld, body: Body = write_b, **job: Any) -> Changes:
    """One attempt from where the branch is: what it was told, before its body wrote anything."""
    seen: list[Changes] = []

    def look(workspace: InMemorySparkWorkspace) -> None:
        seen.append(workspace.changes())
        body(workspace)

    world.ref = world.head.id
    completed(world.run(world.spark_job(look, **job)))
    return seen[0]


def told(world: InMemoryWorld, since: str | None = None) -> Changes:
    """What a next attempt is told; it publishes nothing."""
    seen: list[Changes] = []
    world.ref = world.head.id
    job = world.spark_job(lambda workspace: seen.append(workspace.changes(since)))
    completed(world.run(job))
    return seen[0]


def test_before_its_first_publication_a_task_has_seen_nothing(world: InMemoryWorld) -> None:
    assert run(world) is None
    assert told(world) == {}


def test_what_others_did_since_is_told_and_what_the_task_published_is_not(
    world: InMemoryWorld,
) -> None:
    run(world)
    world.commit({"data/new": b"n", "data/a": b"other", "other/y": b"outside"})
    world.commit({"data/later": b"l", "data/b": None})
    expected = {
        "data/a": "changed",
        "data/b": "removed",
        "data/later": "added",
        "data/new": "added",
    }
    assert run(world, lambda workspace: workspace.write("c", b"3")) == expected
    assert told(world) == {}


def test_what_came_and_went_is_no_change(world: InMemoryWorld) -> None:
    run(world)
    world.commit({"data/new": b"n", "data/a": b"other"})
    world.commit({"data/new": None, "data/a": b"1"})
    assert told(world) == {}


def test_an_attempt_that_publishes_nothing_has_not_seen_anything(world: InMemoryWorld) -> None:
    run(world)
    world.commit({"data/new": b"n"})
    assert told(world) == {"data/new": "added"}
    assert told(world) == {"data/new": "added"}


def test_the_publications_of_other_tasks_and_other_prefixes_do_not_count(
    world: InMemoryWorld,
) -> None:
    run(world)
    world.ref = world.head.id
    other = world.spark_job(lambda workspace: workspace.write("from-other", b"o"))
    completed(world.run(replace(other, name="another")))
    run(world, lambda workspace: workspace.write("y", b"y"), prefix="other")
    assert told(world) == {"data/from-other": "added"}


def test_a_task_on_the_whole_repository_has_an_empty_prefix(world: InMemoryWorld) -> None:
    run(world, lambda workspace: workspace.write("mine", b"m"), prefix="")
    world.commit({"other/y": b"y"})
    assert run(world, prefix="") == {"other/y": "added"}


def test_a_retry_sees_what_its_dead_predecessor_saw(world: InMemoryWorld) -> None:
    run(world)
    world.ref = world.commit({"data/new": b"n"}).id
    seen: list[Changes] = []

    def body(workspace: InMemorySparkWorkspace) -> None:
        seen.append(workspace.changes())
        workspace.write(f"c{len(seen)}", b"3")

    job = world.spark_job(body)
    completed(world.run(job, world.publish_and_die(job)))
    assert seen == [{"data/new": "added"}] * 2
    # The replacement is the publication now.
    assert told(world) == {}


def test_a_branch_goes_on_where_its_origin_was(world: InMemoryWorld) -> None:
    run(world)
    repo = world.lake.repository(REPOSITORY)
    repo.create_branch("side", "main")
    ref = world.lake.write_and_commit(REPOSITORY, "side", {"data/new": b"n"}, None).id
    seen: list[Changes] = []
    job = world.spark_job(lambda workspace: seen.append(workspace.changes()))
    completed(world.run(job, world.deliver(world.payload(branch="side", ref=ref))))
    assert seen == [{"data/new": "added"}]


def test_what_lies_between_a_mixed_publication_and_its_input_was_not_seen(
    world: InMemoryWorld,
) -> None:
    """As a lost race with the soft fence leaves it: others' commits below the publication."""
    run(world)
    published, before = world.head, world.ref
    repo = world.lake.repository(REPOSITORY)
    repo.branch("main").head = before
    between = world.commit({"data/between": b"b", "data/b": b"theirs", "data/a": b"other"})
    tree = {**repo.tree(between.id), "data/b": repo.tree(published.id)["data/b"]}
    mixed = repo.add_commit((between.id,), tree, published.metadata)
    repo.branch("main").head = mixed.id
    assert told(world) == {"data/a": "changed", "data/between": "added"}
    world.commit({"data/b": b"changed later"})
    assert told(world) == {"data/a": "changed", "data/b": "changed", "data/between": "added"}


def test_since_names_any_ref_and_excludes_nothing(world: InMemoryWorld) -> None:
    first = world.ref
    run(world)
    world.lake.tag(REPOSITORY, "monday", world.head.id)
    world.commit({"data/new": b"n"})
    assert told(world, first) == {"data/b": "added", "data/new": "added"}
    assert told(world, "monday") == {"data/new": "added"}
    assert told(world, "main") == {}


def test_a_since_that_is_not_there_fails_and_says_so(world: InMemoryWorld) -> None:
    job = world.spark_job(lambda workspace: workspace.changes("no-such-tag"))
    said = failed(world.run(job), InputError)
    assert "there is no such commit, branch or tag in repository 'repo'" in said


def test_guardrails_after_the_body_see_its_own_output_too(world: InMemoryWorld) -> None:
    run(world)
    world.ref = world.commit({"data/new": b"n"}).id
    seen: list[Changes] = []
    job = world.spark_job(
        lambda workspace: workspace.write("c", b"3"),
        pre=lambda workspace: seen.append(workspace.changes()),
        post=lambda workspace: seen.append(workspace.changes()),
    )
    completed(world.run(job))
    assert seen == [{"data/new": "added"}, {"data/c": "added", "data/new": "added"}]


def test_the_history_is_read_in_pages_up_to_a_bound(
    world: InMemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_seen, "_PAGE", 2)
    monkeypatch.setattr(last_seen, "MOST_COMMITS", 6)
    run(world)
    for number in range(5):
        world.commit({"data/new": str(number).encode()})
    assert told(world) == {"data/new": "added"}
    world.commit({"data/new": b"one too many"})
    world.ref = world.head.id
    job = world.spark_job(lambda workspace: workspace.changes())
    said = failed(world.run(job), UnsupportedOperationError)
    assert "did not publish in the last 6 commits" in said


def test_a_history_of_exactly_the_bound_is_read_to_its_end(
    world: InMemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_seen, "_PAGE", 2)
    monkeypatch.setattr(last_seen, "MOST_COMMITS", 4)
    world.commit({"data/new": b"1"})
    world.commit({"data/new": b"2"})
    assert told(world) is None


@pytest.mark.parametrize("call", ["lake.ancestry", "objects.changes"])
def test_an_outage_fails_the_attempt_and_is_not_taken_for_no_changes(
    world: InMemoryWorld, call: str
) -> None:
    run(world)
    world.ref = world.head.id
    world.faults.inject(call, fails(BackendUnavailableError("away")))
    job = world.spark_job(lambda workspace: workspace.changes())
    failed(world.run(job), BackendUnavailableError)
