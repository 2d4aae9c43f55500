"""Putting a folder on a branch and getting one back: one commit, or none; nothing half done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import (
    BackendUnavailableError,
    NotFoundError,
    ProjectionError,
    PublishFenceError,
    UnknownOutcomeError,
)
from perago.operations.folder_sync import Counts, Put, PutResult, compare, get
from perago.progress import Advance
from perago.testing import (
    Faults,
    InMemoryLake,
    InMemoryObjects,
    fails,
    followed_by,
    preceded_by,
    reply_lost,
    request_lost,
)
from perago.transfer.engine import Engine
from perago.transfer.inventory import RemoteObject, Source

REPO = "repo"


@dataclass
class SyncedFolder:
    """A repository in memory, and a folder beside it."""

    lake: InMemoryLake
    folder: Path

    def __post_init__(self) -> None:
        self.undeleted: list[str] = []

    def write(self, **files: str) -> None:
        for name, text in files.items():
            file = self.folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def put(self, prefix: str = "", *, delete: bool = False) -> PutResult:
        engine = Engine(self.lake.objects, threads=2)
        put = Put(
            self.lake, engine, REPO, "main", prefix, lambda name, _: self.undeleted.append(name)
        )
        return put.run(self.folder, "a message", delete=delete)

    def get(self, target: Path, prefix: str = "", *, delete: bool = False) -> Counts:
        source = Source(REPO, self.head(), prefix)
        return get(self.lake.objects, source, target, 2, delete=delete)

    def head(self) -> str:
        return self.lake.get_head(REPO, "main").id

    def contents(self) -> dict[str, str]:
        found = self.lake.contents(REPO, "main")
        return {key: content.decode() for key, content in found.items()}

    def branches(self) -> list[str]:
        return [item.name for item in self.lake.list_branches(REPO, "")]


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def synced(tmp_path: Path) -> SyncedFolder:
    lake = InMemoryLake(Faults())
    lake.create_repository(REPO)
    folder = tmp_path / "folder"
    folder.mkdir()
    return SyncedFolder(lake, folder)


def test_a_put_is_one_commit_on_the_head(synced: SyncedFolder) -> None:
    before = synced.head()
    synced.write(a="1", b__c="2")
    done = synced.put()
    made = synced.lake.get_head(REPO, "main")
    assert (done.commit, done.head, done.landed_on) == (made.id, before, None)
    assert made.parents == (before,)
    assert done.counts == Counts(added=2, changed=0, removed=0, unchanged=0, size=2)
    assert synced.contents() == {"a": "1", "b/c": "2"}
    assert synced.branches() == ["main"]


def test_nothing_changed_is_no_commit(synced: SyncedFolder) -> None:
    synced.write(a="1", b__c="2")
    first = synced.put()
    again = synced.put(delete=True)
    assert (again.commit, again.head) == (None, first.commit)
    assert again.counts == Counts(added=0, changed=0, removed=0, unchanged=2, size=0)


def test_a_put_adds_and_changes_and_only_delete_removes(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"old", "gone": b"x", "dir/": b""})
    synced.write(a="new", b="2")
    assert synced.put().counts == Counts(added=1, changed=1, removed=0, unchanged=0, size=4)
    assert synced.contents() == {"a": "new", "b": "2", "dir/": "", "gone": "x"}
    assert synced.put(delete=True).counts.removed == 1
    assert synced.contents() == {"a": "new", "b": "2"}


def test_a_file_of_the_same_size_with_other_content_is_changed(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"123"})
    synced.write(a="124")
    assert synced.put().counts.changed == 1


class PartsStore(InMemoryObjects):
    """The objects of a lake as if they had been written in parts: a checksum says nothing."""

    def __init__(self, objects: InMemoryObjects) -> None:
        self.__dict__.update(vars(objects))

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        for item in super().list(repository, ref, prefix):
            yield replace(item, checksum="0" * 32)


def test_an_object_without_an_md5_is_read_to_be_compared(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"same": b"123", "other": b"123"})
    synced.write(same="123", other="124")
    store = PartsStore(synced.lake.objects)
    found = compare(store, Source(REPO, synced.head(), ""), synced.folder, 2)
    assert found.changed == {"other"}


def test_a_put_below_a_prefix_leaves_the_rest_and_the_actions_alone(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(
        REPO, "main", {"other": b"x", "in/old": b"y", "_lakefs_actions/a.yaml": b"z"}
    )
    synced.write(a="1")
    synced.put("in", delete=True)
    assert synced.contents() == {"_lakefs_actions/a.yaml": "z", "in/a": "1", "other": "x"}


def test_a_branch_with_uncommitted_changes_is_not_moved(synced: SyncedFolder) -> None:
    before = synced.head()
    source = synced.folder.with_name("dirty")
    source.write_text("x")
    synced.lake.objects.write(REPO, "main", "dirty", source, content_type="text/plain", metadata={})
    synced.write(a="1")
    with pytest.raises(PublishFenceError, match="uncommitted changes"):
        synced.put()
    assert synced.head() == before


def test_a_branch_that_moves_during_the_put_is_left_alone(synced: SyncedFolder) -> None:
    synced.write(a="1")

    def other() -> None:
        synced.lake.write_and_commit(REPO, "main", {"b": b"2"})

    synced.lake.faults.inject("lake.commit", preceded_by(other))
    with pytest.raises(PublishFenceError, match="moved from"):
        synced.put()
    assert synced.contents() == {"b": "2"}
    assert synced.branches() == ["main"]


def test_a_commit_that_slips_in_right_before_the_merge_is_reported(synced: SyncedFolder) -> None:
    synced.write(a="1")

    def other() -> None:
        synced.lake.write_and_commit(REPO, "main", {"b": b"2"})

    synced.lake.faults.inject("lake.merge", preceded_by(other))
    done = synced.put()
    assert done.landed_on is not None
    assert synced.contents() == {"a": "1", "b": "2"}


def test_after_a_lost_reply_the_branch_says_whether_the_put_landed(synced: SyncedFolder) -> None:
    synced.write(a="1")
    synced.lake.faults.inject("lake.merge", reply_lost)
    assert synced.put().commit == synced.head()


def test_a_put_whose_outcome_is_unknown_can_be_repeated(synced: SyncedFolder) -> None:
    synced.write(a="1")
    synced.lake.faults.inject("lake.merge", request_lost)
    with pytest.raises(UnknownOutcomeError) as raised:
        synced.put()
    assert "again" in raised.value.hint
    assert synced.put().commit == synced.head()


def test_an_error_on_the_way_leaves_no_branch(synced: SyncedFolder) -> None:
    synced.write(a="1")
    synced.lake.faults.inject("objects.write", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        synced.put()
    assert (synced.branches(), synced.contents()) == (["main"], {})


def test_a_file_that_changes_while_it_is_sent_is_refused(synced: SyncedFolder) -> None:
    synced.write(a="1")

    def write_on() -> None:
        synced.write(a="12")

    synced.lake.faults.inject("objects.write", followed_by(write_on))
    with pytest.raises(ProjectionError, match="a file changed") as raised:
        synced.put()
    assert raised.value.hint.startswith("Nothing was put.")
    assert synced.contents() == {}


def test_a_branch_that_cannot_be_deleted_is_named(synced: SyncedFolder) -> None:
    synced.write(a="1")
    synced.lake.faults.inject("lake.delete_branch", fails(BackendUnavailableError("down")))
    synced.put()
    assert [name.startswith("perago-put-") for name in synced.undeleted] == [True]


def test_a_branch_is_named_whose_deletion_was_stopped(synced: SyncedFolder) -> None:
    synced.write(a="1")
    synced.lake.faults.inject("lake.delete_branch", fails(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        synced.put()
    assert [name.startswith("perago-put-") for name in synced.undeleted] == [True]


def test_a_file_in_the_place_of_a_folder_needs_delete(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a/b": b"x", "c": b"y"})
    synced.write(a="1", c__d="2")
    with pytest.raises(ProjectionError, match="2 of the files are folders in LakeFS") as raised:
        synced.put()
    assert "--delete" in raised.value.hint
    synced.put(delete=True)
    assert synced.contents() == {"a": "1", "c/d": "2"}


def test_a_link_is_refused(synced: SyncedFolder) -> None:
    (synced.folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(ProjectionError, match="symlinks: link"):
        synced.put()


# Getting


def test_a_get_makes_the_folder_and_writes_every_file(synced: SyncedFolder, tmp_path: Path) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"1", "b/c": b"2", "empty/": b""})
    target = tmp_path / "new" / "target"
    assert synced.get(target) == Counts(added=2, changed=0, removed=0, unchanged=0, size=2)
    assert files_of(target) == {"a": "1", "b/c": "2"}
    assert (target / "empty").is_dir()
    assert synced.get(target) == Counts(added=0, changed=0, removed=0, unchanged=2, size=0)


def test_a_get_keeps_other_files_and_only_delete_removes_them(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"new"})
    synced.write(a="old", mine__x="1")
    assert synced.get(synced.folder).removed == 0
    assert files_of(synced.folder) == {"a": "new", "mine/x": "1"}
    assert synced.get(synced.folder, delete=True).removed == 1
    assert files_of(synced.folder) == {"a": "new"}
    assert not (synced.folder / "mine").exists()


def test_a_folder_in_the_place_of_a_file_needs_delete(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"1", "c/d": b"2"})
    synced.write(a__b="x", c="y")
    with pytest.raises(ProjectionError, match="folders in the folder"):
        synced.get(synced.folder)
    assert files_of(synced.folder) == {"a/b": "x", "c": "y"}
    synced.get(synced.folder, delete=True)
    assert files_of(synced.folder) == {"a": "1", "c/d": "2"}


def test_a_prefix_without_objects_is_an_error_and_makes_no_folder(
    synced: SyncedFolder, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="below 'nope'"):
        synced.get(tmp_path / "target", "nope")
    assert not (tmp_path / "target").exists()


def test_a_get_through_a_link_of_the_folder_is_refused(
    synced: SyncedFolder, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (synced.folder / "dir").symlink_to(outside)
    synced.lake.write_and_commit(REPO, "main", {"dir/a": b"1"})
    with pytest.raises(ProjectionError, match="symlinks"):
        synced.get(synced.folder)
    assert list(outside.iterdir()) == []


def test_a_get_that_fails_leaves_no_part_of_a_file(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"1"})
    synced.lake.faults.inject("objects.read", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        synced.get(synced.folder)
    assert list(synced.folder.iterdir()) == []


# Progress


def test_both_ways_tell_how_many_bytes_have_moved(synced: SyncedFolder, tmp_path: Path) -> None:
    told: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def show(title: str, total: int | None) -> Iterator[Advance]:
        told.append((title, total, []))
        yield told[-1][2].append

    synced.write(a="12", b="345")
    engine = Engine(synced.lake.objects, threads=1)
    Put(synced.lake, engine, REPO, "main", "", lambda *_: None, show).run(
        synced.folder, "a message", delete=False
    )
    source = Source(REPO, synced.head(), "")
    get(synced.lake.objects, source, tmp_path / "target", 1, delete=False, show=show)
    assert [(title, total, sums[-1]) for title, total, sums in told] == [
        ("upload", 5, 5),
        ("download", 5, 5),
    ]
    assert all(sums == sorted(sums) for _, _, sums in told)


def test_what_a_killed_get_left_is_not_put(synced: SyncedFolder) -> None:
    synced.write(a="1")
    landing = synced.folder / ".perago-get-dead"
    landing.mkdir()
    (landing / "part").write_text("half")
    synced.put()
    assert synced.contents() == {"a": "1"}


def test_a_file_in_the_place_of_a_marker_needs_delete(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"data/": b""})
    synced.write(data="1")
    with pytest.raises(ProjectionError, match="1 of the files are folders in LakeFS"):
        synced.put()
    with pytest.raises(ProjectionError, match="1 of the files are folders in the folder"):
        synced.get(synced.folder)
    synced.get(synced.folder, delete=True)
    assert (synced.folder / "data").is_dir()


def test_folders_without_files_are_in_the_way_too(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"1"})
    (synced.folder / "a" / "b").mkdir(parents=True)
    with pytest.raises(ProjectionError, match="1 of the files are folders in the folder"):
        synced.get(synced.folder)
    synced.write(a__x="surplus")
    synced.get(synced.folder, delete=True)
    assert files_of(synced.folder) == {"a": "1"}


def test_without_delete_no_folder_is_removed(synced: SyncedFolder) -> None:
    synced.lake.write_and_commit(REPO, "main", {"a": b"1"})
    (synced.folder / "empty").mkdir(parents=True)
    synced.get(synced.folder)
    assert (synced.folder / "empty").is_dir()


@pytest.mark.parametrize(
    ("answer", "call"),
    [(lambda do: do(), "lake.get_commit"), (reply_lost, "lake.get_head")],
    ids=["answered", "lost"],
)
def test_an_outage_after_the_merge_leaves_its_outcome_open(
    synced: SyncedFolder, answer: Callable[[Callable[[], Any]], Any], call: str
) -> None:
    synced.write(a="1")

    def merge(do: Callable[[], Any]) -> Any:
        synced.lake.faults.inject(call, fails(BackendUnavailableError("down")))
        return answer(do)

    synced.lake.faults.inject("lake.merge", merge)
    with pytest.raises(UnknownOutcomeError, match="whether it landed cannot be read"):
        synced.put()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143)])
def test_a_stop_during_the_merge_says_that_it_may_have_landed(
    synced: SyncedFolder, stop: BaseException
) -> None:
    """It ended without a word, and the commit was on the branch or not."""
    synced.write(a="1")

    def stopped(do: Callable[[], Any]) -> Any:
        do()
        raise stop

    synced.lake.faults.inject("lake.merge", stopped)
    with pytest.raises(UnknownOutcomeError, match="stopped while the merge into 'main'"):
        synced.put()
    assert synced.branches() == ["main"]
