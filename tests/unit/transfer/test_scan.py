"""The scan of a data folder, and when a stat record proves a file unchanged."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago.errors import ProjectionError
from perago.testing.lake import InMemoryLake
from perago.transfer.comparing import Suspect, changed_files
from perago.transfer.plan import Upload, suspects
from perago.transfer.scan import (
    FetchedFile,
    LocalTree,
    StatRecord,
    level,
    scan,
    scan_within,
    scanned,
)
from perago.transfer.subtrees import Subtree
from perago.transfer.uploading import upload_partition
from support.trees import deep_folder

SECOND = 1_000_000_000


def test_a_scan_finds_files_and_folders_by_relative_path(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"123")
    (tmp_path / "empty").mkdir()
    tree = scan(tmp_path)
    assert {path: record.size for path, record in tree.files.items()} == {"a/b/c": 3}
    assert tree.folders == {"a", "a/b", "empty"}


def test_a_scan_ignores_the_attempt_marker_at_the_root_only(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / ".perago-attempt.json").touch()
    assert set(scan(tmp_path).files) == {"sub/.perago-attempt.json"}


def test_a_bounded_scan_gives_the_same_tree_or_nothing(tmp_path: Path) -> None:
    for name in ("a/b/one", "two"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert scan_within(tmp_path, 4) == scan(tmp_path)
    assert scan_within(tmp_path, 3) is None


@pytest.mark.parametrize("target", ["file", "folder", "missing"])
def test_a_symlink_is_refused_by_its_path(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "path" / "to").mkdir(parents=True)
    (tmp_path / "path" / "to" / "link").symlink_to(tmp_path / target)
    with pytest.raises(ProjectionError) as caught:
        scan(tmp_path)
    assert str(caught.value) == "workspace publication does not support symlinks: path/to/link"


def test_a_symlink_in_the_place_of_the_attempt_marker_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / ".perago-attempt.json").symlink_to("/etc/hostname")
    with pytest.raises(ProjectionError, match=r"symlinks: \.perago-attempt\.json"):
        scan(tmp_path)


def test_a_symlink_whose_name_is_not_utf_8_gives_a_text_that_can_be_logged(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").symlink_to("x")
    with pytest.raises(ProjectionError) as caught:
        scan(tmp_path)
    assert str(caught.value).encode().endswith(b"caf\\udce9")


def test_a_link_at_the_end_of_a_very_long_path_gives_a_short_text(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 200] * 15)
    folder.mkdir(parents=True)
    (folder / "link").symlink_to("x")
    with pytest.raises(ProjectionError) as caught:
        scan(tmp_path)
    assert len(str(caught.value)) < 500


def test_a_tree_too_deep_to_be_named_is_refused_with_a_reason(tmp_path: Path) -> None:
    with (
        deep_folder(tmp_path, 30, "d" * 200),
        pytest.raises(ProjectionError, match="nested too deep") as caught,
    ):
        scan(tmp_path)
    assert len(str(caught.value)) < 500


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, _make_socket], ids=["fifo", "socket"])
def test_sockets_and_pipes_are_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "special")
    with pytest.raises(ProjectionError, match="sockets, pipes or devices: special"):
        scan(tmp_path)


def test_of_several_that_are_refused_the_first_by_path_is_named(tmp_path: Path) -> None:
    for name in ("z", "m", "b", "k/a", "k/z", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to("x")
    with pytest.raises(ProjectionError, match=r"symlinks: b$"):
        scan(tmp_path)
    os.mkfifo(tmp_path / "a")
    with pytest.raises(ProjectionError, match=r"devices: a$"):
        scan(tmp_path)


def test_a_level_has_folders_with_a_slash_and_takes_no_link_for_one(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a")
    assert list(level(tmp_path, "")) == ["a/"]
    assert set(level(tmp_path, "a/")) == {"a/b/", "a/file", "a/link"}


def test_a_unit_is_scanned_with_all_below_it_or_with_what_is_directly_in_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("top", "a/in", "a/b/deep"):
        (tmp_path / name).touch()
    assert {found.path for found in scanned(tmp_path, Subtree("a/"))} == {"a/in", "a/b", "a/b/deep"}
    assert {found.path for found in scanned(tmp_path, Subtree("a/", is_deep=False))} == {
        *["a/in", "a/b"],
    }
    assert {found.path for found in scanned(tmp_path, Subtree(is_deep=False))} == {"top", "a"}


def _age(path: Path) -> StatRecord:
    return StatRecord.of(path.stat())


def _suspected(before: StatRecord, now: StatRecord, started: int) -> bool:
    tree = LocalTree({"f": now}, frozenset())
    return bool(suspects(tree, {"f": FetchedFile(before, "md5")}, started))


def test_an_old_record_that_did_not_change_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one")
    record = _age(tmp_path / "f")
    assert not _suspected(record, record, record.ctime_ns + SECOND)


def test_a_record_as_young_as_the_start_of_the_body_is_not_trusted(tmp_path: Path) -> None:
    """A rewrite of the same size within one tick of the clock leaves the record as it was."""
    (tmp_path / "f").write_bytes(b"one")
    record = _age(tmp_path / "f")
    assert _suspected(record, record, record.ctime_ns)
    assert _suspected(record, record, record.ctime_ns + 10_000_000)


def test_whole_second_stamps_need_more_time_to_be_trusted() -> None:
    coarse = StatRecord(3, 5 * SECOND, 5 * SECOND, 1)
    assert _suspected(coarse, coarse, 6 * SECOND)
    assert not _suspected(coarse, coarse, 8 * SECOND)


def test_a_rewrite_of_the_same_size_with_its_old_times_put_back_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one")
    os.utime(file, ns=(SECOND, SECOND))
    before = _age(file)
    while file.stat().st_ctime_ns == before.ctime_ns:
        file.write_bytes(b"two")
        os.utime(file, ns=(SECOND, SECOND))
    after = _age(file)
    assert (after.size, after.mtime_ns, after.inode) == (before.size, SECOND, before.inode)
    assert _suspected(before, after, before.ctime_ns + SECOND)


def test_a_file_replaced_by_another_of_the_same_size_and_times_is_noticed(tmp_path: Path) -> None:
    file, other = tmp_path / "f", tmp_path / "other"
    file.write_bytes(b"one")
    before = _age(file)
    other.write_bytes(b"two")
    other.rename(file)
    os.utime(file, ns=(before.mtime_ns, before.mtime_ns))
    assert _suspected(before, _age(file), before.ctime_ns + SECOND)


def test_a_new_file_is_no_suspect_because_nothing_is_known_of_it() -> None:
    assert suspects(LocalTree({"new": StatRecord(1, 1, 1, 1)}, frozenset()), {}, SECOND) == []


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """Let a file or folder be one that this user cannot read, or that is gone: root reads all."""
    for module, call in ((os, "open"), (os, "scandir")):
        real = getattr(module, call)

        def checked(path: Any, *rest: Any, real: Any = real, **options: Any) -> Any:
            if str(path).endswith(f"/{name}"):
                raise error
            return real(path, *rest, **options)

        monkeypatch.setattr(module, call, checked)


DENIED = PermissionError(errno.EACCES, "Permission denied")
GONE = FileNotFoundError(errno.ENOENT, "No such file or directory")
LINKED = OSError(errno.ELOOP, "Too many levels of symbolic links")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DENIED, r"cannot be read: in/one"),
        (GONE, r"changed while it was being published: in/one"),
        (LINKED, r"changed while it was being published: in/one"),
    ],
    ids=["denied", "gone", "linked"],
)
def test_a_file_that_the_body_left_unreadable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one").touch()
    refuse(monkeypatch, "one", error)
    lake, suspect = InMemoryLake(), Suspect("in/one", "key", 0, "", is_hashed=True)
    with pytest.raises(ProjectionError, match=text):
        changed_files(lake.objects, "repo", "ref", tmp_path, [suspect], 1)
    upload = Upload("in/one", "key", StatRecord.of((tmp_path / "in" / "one").lstat()))
    monkeypatch.setattr(lake.objects, "write", lambda *_, **__: os.open(tmp_path / "in/one", 0))
    with pytest.raises(ProjectionError, match=text):
        upload_partition(lake.objects, "repo", "main", [upload], tmp_path, 1)


@pytest.mark.parametrize(
    ("error", "text"),
    [(DENIED, "cannot be read: in$"), (GONE, "changed while it was being published: in$")],
    ids=["denied", "gone"],
)
def test_a_folder_that_the_body_left_unreadable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    (tmp_path / "in").mkdir()
    refuse(monkeypatch, "in", error)
    with pytest.raises(ProjectionError, match=text):
        scan(tmp_path)


def test_a_file_that_is_removed_while_its_folder_is_scanned_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()
    entries = scanned(tmp_path)
    left = {"one", "two"} - {next(entries).path}
    (tmp_path / left.pop()).unlink()
    with pytest.raises(ProjectionError, match="changed while it was being published"):
        list(entries)
