"""The history of a branch, from its log, its records and its tags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.cli.history import as_document, lines, older_commits
from perago.operations.history import HistoryEntry, read_history
from perago.protocol.identity import Execution
from perago.protocol.licences import withdrawn_tag
from perago.protocol.record import RESTORED_TAG, Record
from perago.protocol.workspace import StagingBranch
from perago.testing import reply_lost
from support.memory_world import REPOSITORY, TASK, InMemoryWorld, completed, nothing, writes


@pytest.fixture
def world() -> InMemoryWorld:
    return InMemoryWorld()


def entries(world: InMemoryWorld, limit: int = 20) -> list[HistoryEntry]:
    found = read_history(world.lake, world.lake.objects, REPOSITORY, limit=limit)
    assert found.head == world.head.id
    return list(found.entries)


def kinds(found: list[HistoryEntry]) -> list[str]:
    return [entry.kind for entry in found]


def test_publications_and_peoples_commits_are_told_apart(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    completed(world.run(world.job(writes(b=b"2", c=b"3")), delivery))
    published, seed, root = entries(world)
    assert kinds([published, seed, root]) == ["publication", "person", "person"]
    assert published.record is not None
    assert published.record.task_id == delivery.claim.attempt.task_id
    assert published.changed == 2
    assert published.replaces == ()
    assert (seed.changed, root.changed) == (2, 0)
    text = "\n".join(lines(published))
    assert f"{TASK}  2 objects" in text
    assert delivery.claim.attempt.task_id in text


def test_a_replaced_commit_is_shown_with_what_came_in_its_place(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"2")))
    abandoned = world.head.id
    completed(world.run(world.job(writes(b=b"3")), retry))
    published, lost, *_ = found = entries(world)
    assert kinds(found) == ["publication", "replaced", "person", "person"]
    assert published.commit.id == world.head.id
    assert published.replaces == (abandoned,)
    assert lost.commit.id == abandoned
    assert lost.replaced_by == published.commit.id
    assert world.tags[str(lost.tag)] == abandoned
    assert "replaced by" in lines(lost)[0]
    assert "in place of" in lines(published)[0]


def test_a_commit_that_was_taken_back_is_replaced_by_nothing(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"2")))
    completed(world.run(world.job(nothing), retry))
    lost, seed, _ = entries(world)
    assert (lost.kind, lost.replaced_by) == ("replaced", None)
    assert "taken back" in lines(lost)[0]
    # A later publication merged at the input, and did not replace what was gone before.
    completed(world.run(world.job(writes(c=b"3"))))
    published, lost, *_ = entries(world)
    assert published.replaces == ()
    assert lost.replaced_by is None
    assert seed.commit.id == world.ref


def test_a_withdrawn_commit_is_shown_with_the_publication_of_its_task(
    world: InMemoryWorld,
) -> None:
    delivery = world.deliver()
    execution = Execution(delivery.claim, "dead")
    staging = StagingBranch(REPOSITORY, execution.staging_branch_name)
    world.lake.create_branch(staging, world.ref)
    metadata = Record.of(execution, ref=world.ref, params={}).metadata()
    staged = world.lake.write_and_commit(REPOSITORY, staging.branch, {"data/b": b"0"}, metadata)
    completed(world.run(world.job(writes(b=b"2")), delivery))
    published, lost, *_ = entries(world)
    assert lost.kind == "withdrawn"
    assert lost.commit.id == staged.id
    assert lost.replaced_by == published.commit.id
    assert published.replaces == ()
    assert "came instead" in lines(lost)[0]


def test_the_tag_of_a_licence_without_a_commit_is_no_entry(world: InMemoryWorld) -> None:
    delivery = world.deliver()
    execution = Execution(delivery.claim, "dead")
    staging = StagingBranch(REPOSITORY, execution.staging_branch_name)
    world.lake.create_branch(staging, world.ref)
    completed(world.run(world.job(writes(b=b"2")), delivery))
    assert any(tag.startswith("perago-withdrawn-") for tag in world.tags)
    assert kinds(entries(world)) == ["publication", "person", "person"]


def test_a_merge_that_landed_after_its_reply_was_lost_is_one_publication(
    world: InMemoryWorld,
) -> None:
    world.faults.inject("lake.merge", reply_lost)
    completed(world.run(world.job(writes(b=b"2"))))
    assert any(tag.startswith("perago-withdrawn-") for tag in world.tags)
    assert kinds(entries(world)) == ["publication", "person", "person"]


def test_foreign_tags_other_branches_and_old_records_do_not_disturb(world: InMemoryWorld) -> None:
    retry = world.publish_and_die(world.job(writes(b=b"2")))
    completed(world.run(world.job(writes(b=b"3")), retry))
    world.lake.tag(REPOSITORY, "perago-replaced-by-a-person", world.ref)
    world.lake.tag(REPOSITORY, "perago-withdrawn-20269999-" + "0" * 64, world.ref)
    # A branch of its own, made at the same input, has its own lost commits.
    world.lake.create_branch(StagingBranch(REPOSITORY, "other"), world.ref)
    elsewhere = read_history(world.lake, world.lake.objects, REPOSITORY, "other")
    assert kinds(list(elsewhere.entries)) == ["person", "person"]
    old = {
        key: value
        for key, value in Record.of(Execution(retry.claim, "old"), ref=world.ref, params={})
        .metadata()
        .items()
        if key != "perago.record_version"
    }
    world.commit({"data/old": b"1"}, old)
    newest = entries(world)[0]
    assert newest.kind == "publication"
    assert newest.record is not None
    assert newest.record.task_name is None
    assert retry.claim.attempt.reference_name in lines(newest)[0]


def test_a_restoration_names_its_tag(world: InMemoryWorld) -> None:
    world.commit({"data/b": b"1"}, {RESTORED_TAG: "perago-replaced-x"})
    newest = entries(world)[0]
    assert (newest.kind, newest.tag) == ("restoration", "perago-replaced-x")
    assert "restored perago-replaced-x" in lines(newest)[0]


def test_the_limit_counts_commits_of_the_branch(world: InMemoryWorld) -> None:
    assert len(entries(world, limit=1)) == 1
    found = read_history(world.lake, world.lake.objects, REPOSITORY, limit=1)
    assert found.more
    assert not read_history(world.lake, world.lake.objects, REPOSITORY, limit=2).more


def test_a_document_has_full_ids_and_params_as_an_object(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(b=b"2"))))
    found = read_history(world.lake, world.lake.objects, REPOSITORY)
    first = as_document(found)["entries"][0]
    assert first["commit"] == world.head.id
    assert first["record"]["params"] == {"n": 1}
    assert first["record"]["task_name"] == TASK
    assert "result" not in first["record"]
    damaged = replace(found.entries[0].record, params="{") if found.entries[0].record else None
    entry = replace(found.entries[0], record=damaged)
    document = as_document(replace(found, entries=(entry,)))
    assert document["entries"][0]["record"]["params"] is None


def test_a_withdrawn_tag_of_another_logical_task_is_no_entry(world: InMemoryWorld) -> None:
    """An empty licence of one step at the publication of another: the record is not its own."""
    completed(world.run(world.job(writes(b=b"2"))))
    published = world.head.id
    world.lake.tag(REPOSITORY, withdrawn_tag("20260101", published, "0" * 16), published)
    world.commit({"data/c": b"1"})
    assert kinds(entries(world)) == ["person", "publication", "person", "person"]


@pytest.mark.parametrize(("limit", "more"), [(20, 40), (499, 998), (500, 999), (998, 999)])
def test_only_a_limit_that_is_taken_is_named_for_older_commits(limit: int, more: int) -> None:
    assert older_commits(limit) == f"older commits are not shown; --limit {more} shows more"


def test_no_limit_is_named_where_none_shows_more() -> None:
    assert older_commits(999) == "older commits are not shown"
