"""Putting a folder on a branch and getting one back: one commit, or none; nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

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
class Place:
    """A repository in memory, and a folder beside it."""

    lake: InMemoryLake
    folder: Path

    def __post_init__(self) -> None:
        self.leftovers: list[str] = []

    def write(self, **files: str) -> None:
        for name, text in files.items():
            file = self.folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def put(self, prefix: str = "", *, delete: bool = False) -> PutResult:
        engine = Engine(self.lake.objects, threads=2)
        put = Put(
            self.lake, engine, REPO, "main", prefix, lambda name, _: self.leftovers.append(name)
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
def place(tmp_path: Path) -> Place:
    lake = InMemoryLake(Faults())
    lake.create_repository(REPO)
    folder = tmp_path / "folder"
    folder.mkdir()
    return Place(lake, folder)


def test_a_put_is_one_commit_on_the_head(place: Place) -> None:
    before = place.head()
    place.write(a="1", b__c="2")
    done = place.put()
    made = place.lake.get_head(REPO, "main")
    assert (done.commit, done.head, done.landed_on) == (made.id, before, None)
    assert made.parents == (before,)
    assert done.counts == Counts(added=2, changed=0, removed=0, unchanged=0, size=2)
    assert place.contents() == {"a": "1", "b/c": "2"}
    assert place.branches() == ["main"]


def test_nothing_changed_is_no_commit(place: Place) -> None:
    place.write(a="1", b__c="2")
    first = place.put()
    again = place.put(delete=True)
    assert (again.commit, again.head) == (None, first.commit)
    assert again.counts == Counts(added=0, changed=0, removed=0, unchanged=2, size=0)


def test_a_put_adds_and_changes_and_only_delete_removes(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"old", "gone": b"x", "dir/": b""})
    place.write(a="new", b="2")
    assert place.put().counts == Counts(added=1, changed=1, removed=0, unchanged=0, size=4)
    assert place.contents() == {"a": "new", "b": "2", "dir/": "", "gone": "x"}
    assert place.put(delete=True).counts.removed == 1
    assert place.contents() == {"a": "new", "b": "2"}


def test_a_file_of_the_same_size_with_other_content_is_changed(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"123"})
    place.write(a="124")
    assert place.put().counts.changed == 1


class PartsStore(InMemoryObjects):
    """The objects of a lake as if they had been written in parts: a checksum says nothing."""

    def __init__(self, objects: InMemoryObjects) -> None:
        self.__dict__.update(vars(objects))

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        for item in super().list(repository, ref, prefix):
            yield replace(item, checksum="0" * 32)


def test_an_object_without_an_md5_is_read_to_be_compared(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"same": b"123", "other": b"123"})
    place.write(same="123", other="124")
    store = PartsStore(place.lake.objects)
    found = compare(store, Source(REPO, place.head(), ""), place.folder, 2)
    assert found.changed == {"other"}


def test_a_put_below_a_prefix_leaves_the_rest_and_the_actions_alone(place: Place) -> None:
    place.lake.write_and_commit(
        REPO, "main", {"other": b"x", "in/old": b"y", "_lakefs_actions/a.yaml": b"z"}
    )
    place.write(a="1")
    place.put("in", delete=True)
    assert place.contents() == {"_lakefs_actions/a.yaml": "z", "in/a": "1", "other": "x"}


def test_a_branch_with_uncommitted_changes_is_not_moved(place: Place) -> None:
    before = place.head()
    source = place.folder.with_name("dirty")
    source.write_text("x")
    place.lake.objects.write(REPO, "main", "dirty", source, content_type="text/plain", metadata={})
    place.write(a="1")
    with pytest.raises(PublishFenceError, match="uncommitted changes"):
        place.put()
    assert place.head() == before


def test_a_branch_that_moves_during_the_put_is_left_alone(place: Place) -> None:
    place.write(a="1")

    def other() -> None:
        place.lake.write_and_commit(REPO, "main", {"b": b"2"})

    place.lake.faults.inject("lake.commit", preceded_by(other))
    with pytest.raises(PublishFenceError, match="moved from"):
        place.put()
    assert place.contents() == {"b": "2"}
    assert place.branches() == ["main"]


def test_a_commit_that_slips_in_right_before_the_merge_is_reported(place: Place) -> None:
    place.write(a="1")

    def other() -> None:
        place.lake.write_and_commit(REPO, "main", {"b": b"2"})

    place.lake.faults.inject("lake.merge", preceded_by(other))
    done = place.put()
    assert done.landed_on is not None
    assert place.contents() == {"a": "1", "b": "2"}


def test_after_a_lost_reply_the_branch_says_whether_the_put_landed(place: Place) -> None:
    place.write(a="1")
    place.lake.faults.inject("lake.merge", reply_lost)
    assert place.put().commit == place.head()


def test_a_put_whose_outcome_is_unknown_can_be_repeated(place: Place) -> None:
    place.write(a="1")
    place.lake.faults.inject("lake.merge", request_lost)
    with pytest.raises(UnknownOutcomeError) as raised:
        place.put()
    assert "again" in raised.value.hint
    assert place.put().commit == place.head()


def test_an_error_on_the_way_leaves_no_branch(place: Place) -> None:
    place.write(a="1")
    place.lake.faults.inject("objects.write", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        place.put()
    assert (place.branches(), place.contents()) == (["main"], {})


def test_a_file_that_changes_while_it_is_sent_is_refused(place: Place) -> None:
    place.write(a="1")

    def write_on() -> None:
        place.write(a="12")

    place.lake.faults.inject("objects.write", followed_by(write_on))
    with pytest.raises(ProjectionError, match="a file changed") as raised:
        place.put()
    assert raised.value.hint.startswith("Nothing was put.")
    assert place.contents() == {}


def test_a_branch_that_cannot_be_deleted_is_named(place: Place) -> None:
    place.write(a="1")
    place.lake.faults.inject("lake.delete_branch", fails(BackendUnavailableError("down")))
    place.put()
    assert [name.startswith("perago-put-") for name in place.leftovers] == [True]


def test_a_file_in_the_place_of_a_folder_needs_delete(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a/b": b"x", "c": b"y"})
    place.write(a="1", c__d="2")
    with pytest.raises(ProjectionError, match="2 of the files are folders in LakeFS") as raised:
        place.put()
    assert "--delete" in raised.value.hint
    place.put(delete=True)
    assert place.contents() == {"a": "1", "c/d": "2"}


def test_a_link_is_refused(place: Place) -> None:
    (place.folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(ProjectionError, match="symlinks: link"):
        place.put()


# Getting


def test_a_get_makes_the_folder_and_writes_every_file(place: Place, tmp_path: Path) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"1", "b/c": b"2", "empty/": b""})
    target = tmp_path / "new" / "target"
    assert place.get(target) == Counts(added=2, changed=0, removed=0, unchanged=0, size=2)
    assert files_of(target) == {"a": "1", "b/c": "2"}
    assert (target / "empty").is_dir()
    assert place.get(target) == Counts(added=0, changed=0, removed=0, unchanged=2, size=0)


def test_a_get_keeps_other_files_and_only_delete_removes_them(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"new"})
    place.write(a="old", mine__x="1")
    assert place.get(place.folder).removed == 0
    assert files_of(place.folder) == {"a": "new", "mine/x": "1"}
    assert place.get(place.folder, delete=True).removed == 1
    assert files_of(place.folder) == {"a": "new"}
    assert not (place.folder / "mine").exists()


def test_a_folder_in_the_place_of_a_file_needs_delete(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"1", "c/d": b"2"})
    place.write(a__b="x", c="y")
    with pytest.raises(ProjectionError, match="folders in the folder"):
        place.get(place.folder)
    assert files_of(place.folder) == {"a/b": "x", "c": "y"}
    place.get(place.folder, delete=True)
    assert files_of(place.folder) == {"a": "1", "c/d": "2"}


def test_a_prefix_without_objects_is_an_error_and_makes_no_folder(
    place: Place, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="below 'nope'"):
        place.get(tmp_path / "target", "nope")
    assert not (tmp_path / "target").exists()


def test_a_get_through_a_link_of_the_folder_is_refused(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (place.folder / "dir").symlink_to(outside)
    place.lake.write_and_commit(REPO, "main", {"dir/a": b"1"})
    with pytest.raises(ProjectionError, match="symlinks"):
        place.get(place.folder)
    assert list(outside.iterdir()) == []


def test_a_get_that_fails_leaves_no_part_of_a_file(place: Place) -> None:
    place.lake.write_and_commit(REPO, "main", {"a": b"1"})
    place.lake.faults.inject("objects.read", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        place.get(place.folder)
    assert list(place.folder.iterdir()) == []


# Progress


def test_both_ways_tell_how_many_bytes_have_moved(place: Place, tmp_path: Path) -> None:
    told: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def show(title: str, total: int | None) -> Iterator[Advance]:
        told.append((title, total, []))
        yield told[-1][2].append

    place.write(a="12", b="345")
    engine = Engine(place.lake.objects, threads=1)
    Put(place.lake, engine, REPO, "main", "", lambda *_: None, show).run(
        place.folder, "a message", delete=False
    )
    source = Source(REPO, place.head(), "")
    get(place.lake.objects, source, tmp_path / "target", 1, delete=False, show=show)
    assert [(title, total, sums[-1]) for title, total, sums in told] == [
        ("upload", 5, 5),
        ("download", 5, 5),
    ]
    assert all(sums == sorted(sums) for _, _, sums in told)
