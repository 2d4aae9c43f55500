"""Removing folders by descriptor: all of them, at any depth, and never through a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perago.transfer.removal import remove_tree
from support.trees import deep_folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def make_tree(folder: Path) -> None:
    for name in ("a/b/c/file", "a/b/other", "a/file", "z/file", "file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_tree_is_removed_and_its_neighbours_stay(tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    make_tree(tmp_path / "neighbour")
    remove_tree(tmp_path / "tree")
    assert [path.name for path in tmp_path.iterdir()] == ["neighbour"]
    assert (tmp_path / "neighbour" / "a" / "b" / "c" / "file").exists()


def test_a_tree_whose_paths_are_longer_than_the_system_takes_is_removed(tmp_path: Path) -> None:
    with deep_folder(tmp_path, 100, "d" * 200):
        remove_tree(tmp_path / ("d" * 200))
        assert list(tmp_path.iterdir()) == []


def test_removing_a_deep_tree_takes_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    real = os.scandir

    def counting(folder: int) -> object:
        nonlocal most
        most = max(most, len(list(Path("/proc/self/fd").iterdir())))
        return real(folder)

    before = len(list(Path("/proc/self/fd").iterdir()))
    with deep_folder(tmp_path, 100):
        monkeypatch.setattr(os, "scandir", counting)
        remove_tree(tmp_path / "d")
        monkeypatch.undo()
    assert before < most <= before + 5


def test_names_that_are_not_utf_8_and_links_that_lead_nowhere_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "caf\udce9" / "x").mkdir(parents=True)
    (folder / "caf\udce9" / "link").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    remove_tree(folder)
    assert not folder.exists()


def test_a_folder_that_is_not_there_and_a_link_to_one_are_errors(tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    (tmp_path / "link").symlink_to("tree")
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "gone")
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "tree" / "file").exists()


def test_removing_never_changes_what_a_link_in_the_folder_leads_to(plain_user: Path) -> None:
    outside, folder = plain_user / "outside", plain_user / "folder"
    outside.mkdir(mode=0o500)
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "locked" / "inner").mkdir(parents=True)
    (folder / "locked" / "file").touch()
    (folder / "locked" / "inner" / "file").touch()
    (folder / "locked" / "inner").chmod(0o000)
    (folder / "locked").chmod(0o500)
    root_mode = mode(plain_user)
    remove_tree(folder)
    assert not folder.exists()
    assert mode(outside) == 0o500
    assert mode(plain_user) == root_mode


def swap(folder: Path, target: Path) -> None:
    """Put a link in the place of a folder, as a process of the body may at any moment."""
    if folder.is_dir() and not folder.is_symlink():
        folder.rename(folder.with_name(f"moved-{folder.name}"))
        folder.symlink_to(target)


@pytest.mark.parametrize("call", ["open", "scandir", "rename", "unlink", "rmdir", "fchmod"])
@pytest.mark.parametrize("turn", range(4))
def test_a_link_that_is_swapped_in_while_it_runs_is_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, turn: int
) -> None:
    """Before each call of the removal in turn, a folder of the tree becomes a link."""
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    make_tree(outside)
    make_tree(tree)
    before = sorted(outside.rglob("*"))
    real: Callable[..., object] = getattr(os, call)
    calls = 0

    def swap_first(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == turn + 1:
            with monkeypatch.context() as plain:
                plain.setattr(os, call, real)
                for inner in ("a/b/c", "a/b", "z", "a"):
                    swap(tree / inner, outside)
        return real(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, swap_first)
        remove_tree(tree)

    assert sorted(outside.rglob("*")) == before
    assert not tree.exists()


def test_a_removal_ends_with_its_time_and_another_one_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    make_tree(folder)
    with pytest.raises(TimeoutError, match="not finished within 0 s"):
        remove_tree(folder, seconds=0.0)
    assert folder.is_dir()
    remove_tree(folder)
    assert not folder.exists()


def test_what_cannot_be_removed_is_an_error_and_the_rest_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tree"
    make_tree(folder)
    real = os.unlink

    def refuse(name: str, *, dir_fd: int) -> None:
        if name == "other":
            raise PermissionError("not this one")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError, match="not this one"):
        remove_tree(folder)
    monkeypatch.undo()
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["other"]
