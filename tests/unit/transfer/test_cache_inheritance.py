"""What a workspace leaves to the object cache: its large files, moved and not copied."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.testing.lake import InMemoryLake
from perago.transfer import cache_inheritance
from perago.transfer.cache import CachedObject, ObjectCache
from perago.transfer.engine import Engine
from perago.transfer.workspaces import LocalWorkspace, LocalWorkspaces
from support.cached import content_of, remote_of, take

REPOSITORY = "repo"
SMALL, LARGE, OTHER = content_of(1), content_of(7), content_of(14)


class Host:
    """A lake with a small and a large file, and workspaces that share a cache."""

    def __init__(self, folder: Path, cache: ObjectCache) -> None:
        self.cache = cache
        cache.prepare()
        self.lake = InMemoryLake()
        self.lake.create_repository(REPOSITORY)
        files: dict[str, bytes | None] = {"in/small": SMALL, "in/sub/large": LARGE}
        self.ref = self.lake.write_and_commit(REPOSITORY, "main", files).id
        self.workspaces = LocalWorkspaces(folder / "root", Engine(self.lake.objects, 4, cache))
        self._number = 0

    @contextmanager
    def workspace(self, ref: str = "") -> Iterator[LocalWorkspace]:
        self._number += 1
        execution = Execution(Claim(Attempt("w", "t", 0, "r"), "c"), f"e{self._number}")
        given = WorkspaceInput(
            repository=REPOSITORY, branch="main", ref_type="commit", ref=ref or self.ref
        )
        with self.workspaces.open(execution) as workspace:
            workspace.fetch(given, "in")
            yield workspace

    def entry(self, content: bytes) -> Path:
        found = self.cache.find(REPOSITORY, remote_of(content))
        assert isinstance(found, CachedObject)
        found.close()
        return Path(found.path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, ObjectCache(tmp_path / "cache", 1 << 30))


def test_a_large_file_that_was_downloaded_is_moved_when_its_workspace_is_over(host: Host) -> None:
    with host.workspace() as workspace:
        inode = (workspace.data / "sub/large").stat().st_ino
        # Until then the cache has no copy of it.
        assert take(host.cache, remote_of(LARGE)) is None
    entry = host.entry(LARGE)
    assert entry.stat().st_ino == inode
    assert entry.stat().st_mode & 0o777 == 0o600
    assert take(host.cache, remote_of(LARGE)) == LARGE
    assert list(host.workspaces.root.iterdir()) == []
    with host.workspace() as workspace:
        assert (workspace.data / "sub/large").read_bytes() == LARGE
        assert (workspace.data / "sub/large").stat().st_ino != inode
    assert host.cache.take_counts()["cache_hits"] == 0  # told with the download


def test_a_large_file_that_was_uploaded_is_moved_too(host: Host) -> None:
    staging = StagingBranch(REPOSITORY, "staging")
    with host.workspace() as workspace:
        (workspace.data / "made").write_bytes(OTHER)
        host.lake.create_branch(staging, host.ref)
        workspace.stage(workspace.changes(), staging)
        inode = (workspace.data / "made").stat().st_ino
    assert host.entry(OTHER).stat().st_ino == inode
    assert take(host.cache, remote_of(OTHER)) == OTHER


def written_in_place(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"written in place")


def moved_away(file: Path) -> None:
    file.rename(file.with_name("moved"))


def linked(file: Path) -> None:
    os.link(file, file.with_name("linked"))


def replaced_by_a_link(file: Path) -> None:
    kept = file.with_name("kept")
    file.rename(kept)
    file.symlink_to(kept)


def behind_a_link(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.symlink_to("elsewhere")
    written_in_place(file)


def without_its_folder(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.write_text("a file now")


@pytest.mark.parametrize(
    "change",
    [
        *(written_in_place, Path.unlink, moved_away, linked),
        *(replaced_by_a_link, behind_a_link, without_its_folder),
    ],
)
def test_what_a_body_did_anything_to_is_not_taken(
    host: Host, change: Callable[[Path], None]
) -> None:
    with host.workspace() as workspace:
        change(workspace.data / "sub/large")
    assert list(host.cache.folder.glob("objects/*/*")) == []
    assert take(host.cache, remote_of(SMALL)) == SMALL
    with host.workspace() as workspace:
        assert (workspace.data / "sub/large").read_bytes() == LARGE
    assert take(host.cache, remote_of(LARGE)) == LARGE


def test_a_process_that_still_writes_to_a_file_that_was_moved_is_found_out(host: Host) -> None:
    with host.workspace() as workspace:
        descriptor = os.open(workspace.data / "sub/large", os.O_RDWR)
    os.pwrite(descriptor, b"late", 100)
    os.close(descriptor)
    with host.workspace() as workspace:
        assert (workspace.data / "sub/large").read_bytes() == LARGE
    assert take(host.cache, remote_of(LARGE)) == LARGE


def test_a_failed_attempt_leaves_its_download(host: Host) -> None:
    with pytest.raises(RuntimeError), host.workspace():
        raise RuntimeError("the body failed")
    assert take(host.cache, remote_of(LARGE)) == LARGE


def test_what_does_not_fit_into_the_limit_goes_with_its_workspace(tmp_path: Path) -> None:
    host = Host(tmp_path, ObjectCache(tmp_path / "cache", 2 * len(LARGE)))
    with host.workspace():
        pass
    assert take(host.cache, remote_of(LARGE)) is None
    assert list(host.workspaces.root.iterdir()) == []


def test_moves_that_take_too_long_are_left(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_inheritance, "_SECONDS", -1.0)
    with host.workspace():
        pass
    assert take(host.cache, remote_of(LARGE)) is None
    assert list(host.workspaces.root.iterdir()) == []


def test_a_cache_that_is_gone_fails_no_attempt(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with host.workspace():
        shutil.rmtree(host.cache.folder)
    assert list(host.workspaces.root.iterdir()) == []
    assert "is not used for now" in caplog.text
    with host.workspace() as workspace:
        assert (workspace.data / "sub/large").read_bytes() == LARGE


def test_from_another_file_system_a_file_is_copied_at_once(tmp_path: Path) -> None:
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        host = Host(tmp_path, ObjectCache(elsewhere / "cache", 1 << 30))
        assert elsewhere.stat().st_dev != tmp_path.stat().st_dev
        with host.workspace() as workspace:
            assert take(host.cache, remote_of(LARGE)) == LARGE
            written_in_place(workspace.data / "sub/large")
        assert take(host.cache, remote_of(LARGE)) == LARGE
    finally:
        shutil.rmtree(elsewhere)


def test_an_entry_that_came_meanwhile_stays(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with host.workspace():
        host.cache.add_read(
            REPOSITORY, remote_of(LARGE), remote_of(LARGE).checksum, memoryview(LARGE)
        )
        before = host.entry(LARGE)
        monkeypatch.setattr(cache_inheritance, "on_disk", None)  # nothing is counted again
    assert host.entry(LARGE) == before
    assert take(host.cache, remote_of(LARGE)) == LARGE
