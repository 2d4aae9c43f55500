"""Whole projections through the real LakeFS: what comes, what goes, and what stays."""

from __future__ import annotations

import os
import shutil

import pytest

from perago.errors import ProjectionError
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from support.lake_repository import LakeRepository
from support.trees import ODD_NAMES, contents

pytestmark = pytest.mark.servers


def test_odd_keys_come_down_and_go_up_unchanged(lake: LakeRepository) -> None:
    for number, name in enumerate(ODD_NAMES):
        lake.put(f"data/{name}", b"%d" % number)
        lake.put(f"data/in/{name}/inner", b"in %d" % number)
    ref = lake.commit()
    with lake.workspace(ref, "data") as workspace:
        expected = {name: b"%d" % number for number, name in enumerate(ODD_NAMES)}
        expected |= {f"in/{name}/inner": b"in %d" % i for i, name in enumerate(ODD_NAMES)}
        assert contents(workspace.data) == expected
        assert not workspace.changes()
        for name in ODD_NAMES:
            (workspace.data / name).write_bytes(b"changed " + os.fsencode(name))
            (workspace.data / "new" / name).parent.mkdir(exist_ok=True)
            (workspace.data / "new" / name).write_bytes(b"new")
        shutil.rmtree(workspace.data / "in")
        plan, branch = lake.stage(workspace, ref)
    assert len(plan.uploads) == 2 * len(ODD_NAMES)
    assert len(plan.deletes) == len(ODD_NAMES)
    listed = lake.listing(branch)
    assert set(listed) == {f"data/{n}" for n in ODD_NAMES} | {f"data/new/{n}" for n in ODD_NAMES}
    for name in ODD_NAMES:
        assert lake.content(f"data/{name}", branch) == b"changed " + os.fsencode(name)


def test_the_longest_key_is_published_and_a_longer_one_is_refused_by_name(
    lake: LakeRepository,
) -> None:
    longest = "/".join(["d" * 200] * 5) + "/" + "é" * 9 + "x"
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        file = workspace.data / longest
        file.parent.mkdir(parents=True)
        file.touch()
        assert len(longest.encode()) == 1024
        _, branch = lake.stage(workspace, ref)
        assert set(lake.listing(branch)) == {longest}
        file.with_name(file.name + "y").touch()
        with pytest.raises(ProjectionError, match="more than 1024 bytes"):
            workspace.changes()


def test_every_bad_key_is_reported_in_one_error_before_anything_is_downloaded(
    lake: LakeRepository,
) -> None:
    """``a//b`` and ``a`` beside ``a/b`` are told before a file system trips over them."""
    bad = ["a//b", "../up", "in/../side", "file/child", "x" * 256]
    for key in [*bad, "file", "good", "dir/below"]:
        lake.client.objects_api.upload_object(lake.repository, "main", f"p/{key}", content=b"x")
    lake.put_marker("p/dir/")
    ref = lake.commit()
    with lake.unfetched() as workspace:
        with pytest.raises(ProjectionError) as caught:
            workspace.fetch(lake.input(ref), "p")
        assert list(workspace.data.iterdir()) == []
    assert f"{len(bad)} object keys cannot be files here" in str(caught.value)
    for key in bad:
        assert repr(f"p/{key}") in str(caught.value)


def test_directory_markers_become_folders_and_survive_while_the_folder_does(
    lake: LakeRepository,
) -> None:
    """An object ``dir/`` is a folder, and not a file that cannot be written."""
    for key in ("p/", "p/kept/", "p/kept/deep/", "p/removed/"):
        lake.put_marker(key)
    lake.put("p/kept/file", b"1")
    ref = lake.commit()
    with lake.workspace(ref, "p") as workspace:
        assert (workspace.data / "kept" / "deep").is_dir()
        assert not workspace.changes()
        (workspace.data / "removed").rmdir()
        plan, branch = lake.stage(workspace, ref)
    assert plan.deletes == ("p/removed/",)
    assert set(lake.listing(branch)) == {"p/", "p/kept/", "p/kept/deep/", "p/kept/file"}


def test_prefix_audio_neither_lists_nor_deletes_audio_archive(lake: LakeRepository) -> None:
    """LakeFS lists ``audio-archive/`` for the prefix ``audio``."""
    for key in ("audio/a", "audio-archive/b", "audio.txt", "audiobook/c"):
        lake.put(key, b"x")
    ref = lake.commit()
    with lake.workspace(ref, "audio") as workspace:
        assert contents(workspace.data) == {"a": b"x"}
        (workspace.data / "a").unlink()
        plan, branch = lake.stage(workspace, ref)
    assert plan.deletes == ("audio/a",)
    assert set(lake.listing(branch)) == {"audio-archive/b", "audio.txt", "audiobook/c"}


def test_the_whole_repository_comes_without_its_actions_and_without_the_marker(
    lake: LakeRepository,
) -> None:
    for key in ("a", "deep/b", ".perago-attempt.json"):
        lake.put(key, b"x")
    # A real one: LakeFS reads whatever is there with each commit.
    lake.put(ACTION_PATH, ACTION_TEXT.encode())
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        assert contents(workspace.data) == {"a": b"x", "deep/b": b"x"}
        (workspace.data / "a").unlink()
        (workspace.data / ".perago-attempt.json").write_bytes(b"the body's")
        plan, branch = lake.stage(workspace, ref)
    assert plan.deletes == ("a",)
    assert plan.uploads == ()
    kept = {".perago-attempt.json", ACTION_PATH, "deep/b"}
    assert set(lake.listing(branch)) == kept
    assert lake.content(".perago-attempt.json", branch) == b"x"


def test_a_body_that_writes_actions_fails_before_anything_is_staged(lake: LakeRepository) -> None:
    with lake.workspace(lake.commit()) as workspace:
        (workspace.data / "_lakefs_actions").mkdir()
        (workspace.data / "_lakefs_actions" / "evil.yaml").write_bytes(b"x")
        with pytest.raises(ProjectionError, match=r"_lakefs_actions/evil\.yaml"):
            workspace.changes()


def test_a_file_may_become_a_folder_and_a_folder_a_file(lake: LakeRepository) -> None:
    lake.put("file", b"1")
    lake.put("folder/x", b"2")
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        (workspace.data / "file").unlink()
        (workspace.data / "file").mkdir()
        (workspace.data / "file" / "x").write_bytes(b"3")
        shutil.rmtree(workspace.data / "folder")
        (workspace.data / "folder").write_bytes(b"4")
        _, branch = lake.stage(workspace, ref)
    assert set(lake.listing(branch)) == {"file/x", "folder"}


def test_empty_files_come_and_go_and_empty_folders_are_not_published(lake: LakeRepository) -> None:
    lake.put("empty", b"")
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        assert contents(workspace.data) == {"empty": b""}
        (workspace.data / "also-empty").touch()
        (workspace.data / "folder").mkdir()
        plan, branch = lake.stage(workspace, ref)
    assert [upload.key for upload in plan.uploads] == ["also-empty"]
    assert {key: item.size for key, item in lake.listing(branch).items()} == {
        "also-empty": 0,
        "empty": 0,
    }


def test_a_rewrite_with_the_same_content_is_no_change_because_the_hash_decides(
    lake: LakeRepository,
) -> None:
    lake.put("a", b"same")
    lake.put("b", b"same")
    with lake.workspace(lake.commit()) as workspace:
        (workspace.data / "a").unlink()
        (workspace.data / "a").write_bytes(b"same")
        os.utime(workspace.data / "b", ns=(1, 1))
        assert not workspace.changes()


def test_a_rewrite_of_the_same_size_right_after_the_download_is_a_change(
    lake: LakeRepository,
) -> None:
    lake.put("a", b"one")
    with lake.workspace(lake.commit()) as workspace:
        file = workspace.data / "a"
        before = file.stat()
        with file.open("r+b") as opened:
            opened.write(b"two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert [upload.path for upload in workspace.changes().collect().uploads] == ["a"]


def test_an_emptied_workspace_deletes_everything_only_when_it_is_the_folder_we_made(
    lake: LakeRepository,
) -> None:
    """A folder that something else emptied must not be published as an empty branch."""
    lake.put("a", b"x")
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        shutil.rmtree(workspace.data)
        workspace.data.mkdir()
        with pytest.raises(ProjectionError, match="not the one this execution made"):
            workspace.changes()
    with lake.workspace(ref) as workspace:
        (workspace.data / "a").unlink()
        assert workspace.changes().collect().deletes == ("a",)


def test_a_file_that_changes_after_the_scan_is_never_published(lake: LakeRepository) -> None:
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        file = workspace.data / "log"
        file.write_bytes(b"first")
        plan = workspace.changes()
        file.write_bytes(b"a process that the body left behind")
        with pytest.raises(ProjectionError, match="changed while it was being published: log"):
            workspace.stage(plan, lake.staging(ref))


def test_a_file_swapped_for_a_link_after_the_scan_is_never_published(lake: LakeRepository) -> None:
    ref = lake.commit()
    with lake.workspace(ref) as workspace:
        file = workspace.data / "f"
        file.write_bytes(b"x")
        plan = workspace.changes()
        file.unlink()
        file.symlink_to("/etc/hostname")
        staging = lake.staging(ref)
        with pytest.raises(ProjectionError, match="changed while"):
            workspace.stage(plan, staging)
    assert lake.listing(staging.branch) == {}
