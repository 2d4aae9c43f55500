"""The kept workspace: what the next attempt takes of it, what it never takes, and that it goes."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.testing.lake import InMemoryLake
from perago.transfer import kept as module
from perago.transfer.cache import ObjectCache
from perago.transfer.engine import Engine
from perago.transfer.kept import KeptWorkspace
from perago.transfer.sweep import Fate, clear_kept, sweep
from perago.transfer.workspaces import LocalDirectory, LocalWorkspace, LocalWorkspaces
from support.cached import content_of, remote_of, take
from support.executions import an_execution

REPOSITORY = "repo"
A, B, C, LARGE = content_of(1), content_of(2), content_of(3), content_of(7)
FILES = {"in/a": A, "in/sub/b": B, "in/sub/deep/c": C}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")


class Host:
    """A lake with three files and a folder marker, and an executor's workspaces."""

    def __init__(self, folder: Path, cache: ObjectCache | None) -> None:
        if cache is not None:
            cache.prepare()
        self.cache = cache
        self.lake = InMemoryLake()
        self.kept = KeptWorkspace()
        self.root = folder / "root"
        engine = Engine(self.lake.objects, 4, cache, self.kept)
        self.workspaces = LocalWorkspaces(self.root, engine, self.kept)
        self.counts: dict[str, int] = {}
        self.ref = ""
        self._number = 0
        for repository in (REPOSITORY, "other"):
            self.lake.create_repository(repository)
        self.write({**FILES, "in/empty/": b""})

    def write(self, files: Mapping[str, bytes | None], repository: str = REPOSITORY) -> None:
        self.ref = self.lake.write_and_commit(repository, "main", dict(files)).id

    @contextmanager
    def workspace(
        self, prefix: str = "in", repository: str = REPOSITORY
    ) -> Iterator[LocalWorkspace]:
        self._number += 1
        given = WorkspaceInput(
            repository=repository, branch="main", ref_type="commit", ref=self.ref
        )
        execution = an_execution(execution_id=f"exec-{self._number}")
        with self.workspaces.open(execution) as workspace:
            self.counts = workspace.fetch(given, prefix)
            yield workspace

    def fetched_again(self) -> dict[str, object]:
        """What a fresh download gives."""
        self.kept.drop()
        with self.workspace() as workspace:
            return described(workspace.data)

    @property
    def kept_folder(self) -> Path:
        (found,) = self.root.iterdir()
        return found


def described(folder: Path) -> dict[str, object]:
    """Everything about a tree but inodes and times."""
    found: dict[str, object] = {}
    for path in (folder, *folder.rglob("*")):
        result = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(result.st_mode) else None
        traits = (result.st_mode, result.st_uid, result.st_gid, content, os.listxattr(path))
        found[str(path.relative_to(folder))] = traits
    return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, ObjectCache(tmp_path / "cache", 1 << 30))
    yield host
    host.kept.drop()
    assert list(host.root.iterdir()) == []


def test_the_next_attempt_takes_the_very_files(host: Host) -> None:
    with host.workspace() as workspace:
        before = {path: (workspace.data / path).stat().st_ino for path in ("a", "sub/b")}
        assert host.counts["kept_files"] == 0
    assert host.kept_folder.name == f".new-kept-{os.getpid()}-exec-1"
    with host.workspace() as workspace:
        assert {path: (workspace.data / path).stat().st_ino for path in before} == before
        assert host.counts["kept_files"] == 3
        assert host.counts["kept_bytes"] == len(A) + len(B) + len(C)
        assert host.counts["cache_hits"] == host.counts["cache_misses"] == 0
        assert [path.name for path in host.root.iterdir()] == ["task-1-exec-2"]
        found = described(workspace.data)
        assert not workspace.changes()
    assert found == host.fetched_again()


def test_the_listing_decides_what_is_taken(host: Host) -> None:
    with host.workspace() as workspace:
        (workspace.data / "a").write_bytes(B)
        (workspace.data / "new").write_bytes(C)
        (workspace.data / "not published").write_bytes(C)
        (workspace.data / "sub/deep/c").unlink()
    host.write({"in/a": B, "in/new": C, "in/sub/b": A, "in/sub/deep/c": None})
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 2  # a and new
        found = described(workspace.data)
    assert sorted(found) == [".", "a", "empty", "new", "sub", "sub/b"]
    assert found == host.fetched_again()


def test_what_the_next_body_changes_is_found(host: Host) -> None:
    with host.workspace():
        pass
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        # The same size, at once: the stat record alone may not show it.
        (workspace.data / "a").write_bytes(A[::-1])
        changes = workspace.changes()
        assert [upload.path for upload in changes.collect().uploads] == ["a"]
        staging = StagingBranch(REPOSITORY, "main")
        workspace.stage(changes, staging)


def test_an_untouched_file_is_known_by_its_record(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with host.workspace():
        pass
    monkeypatch.setattr("perago.transfer.engine.changed_files", suspected := Suspected())
    monkeypatch.setattr(LocalDirectory, "touch", touch_late)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        assert not workspace.changes()
        assert suspected.count == 0


class Suspected:
    count = 0

    def __call__(self, *arguments: list[object]) -> set[str]:
        self.count += len(arguments[4])
        return set()


def touch_late(
    self: LocalDirectory, touch: Callable[[LocalDirectory], int] = LocalDirectory.touch
) -> int:
    time.sleep(0.2)
    return touch(self)


def a_late_flush(data: Path) -> object:
    file = (data / "a").open("r+b")  # never closed: flushed when it is collected
    file.write(b"late")
    return file


def an_open_descriptor(data: Path) -> object:
    return (data / "a").open("r+b", buffering=0)


def a_mapping(data: Path) -> object:
    with (data / "a").open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


@pytest.mark.parametrize("leak", [a_late_flush, an_open_descriptor, a_mapping])
def test_a_file_that_is_still_open_for_writing_is_not_taken(
    host: Host, leak: Callable[[Path], object]
) -> None:
    with host.workspace() as workspace:
        leaked = leak(workspace.data)
        inode = (workspace.data / "a").stat().st_ino
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 2
        assert (workspace.data / "a").stat().st_ino != inode
        if isinstance(leaked, mmap.mmap):
            leaked[:4] = b"late"
        else:
            leaked.write(b"late")  # type: ignore[attr-defined]
        leaked.close()  # type: ignore[attr-defined]
        assert (workspace.data / "a").read_bytes() == A
        assert not workspace.changes()


def linked_outside(data: Path) -> None:
    os.link(data / "a", data.parents[2] / "outside")


def linked_inside(data: Path) -> None:
    os.link(data / "a", data / "again")


def changed_in_place(data: Path) -> None:
    with (data / "a").open("r+b") as file:
        file.write(b"damage")


def changed_with_its_times(data: Path) -> None:
    found = (data / "a").stat()
    changed_in_place(data)
    os.utime(data / "a", ns=(found.st_atime_ns, found.st_mtime_ns))


def with_a_mode(data: Path) -> None:
    (data / "a").chmod(0o600)


def with_an_attribute(data: Path) -> None:
    os.setxattr(data / "a", "user.origin", b"x")


def replaced_by_a_link(data: Path) -> None:
    (data / "a").rename(data.parent / "a")
    (data / "a").symlink_to("../a")


def replaced_by_a_pipe(data: Path) -> None:
    (data / "a").unlink()
    os.mkfifo(data / "a")


def replaced_by_a_folder(data: Path) -> None:
    (data / "a").unlink()
    (data / "a" / "inner").mkdir(parents=True)


def gone(data: Path) -> None:
    (data / "a").unlink()


@pytest.mark.parametrize(
    "change",
    [
        *(linked_outside, linked_inside, changed_in_place, changed_with_its_times, with_a_mode),
        *(with_an_attribute, replaced_by_a_link, replaced_by_a_pipe, replaced_by_a_folder, gone),
    ],
)
def test_a_file_that_a_download_would_not_write_so_is_not_taken(
    host: Host, change: Callable[[Path], None]
) -> None:
    with host.workspace() as workspace:
        change(workspace.data)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 2
        found = described(workspace.data)
    assert found == host.fetched_again()


def a_linked_folder(data: Path) -> None:
    (data / "sub").rename(data.parent / "elsewhere")
    (data / "sub").symlink_to("../elsewhere")


def a_file_for_a_folder(data: Path) -> None:
    shutil.rmtree(data / "sub")
    (data / "sub").write_bytes(b"x")


@pytest.mark.parametrize("change", [a_linked_folder, a_file_for_a_folder])
def test_no_file_is_taken_through_what_is_no_folder(
    host: Host, change: Callable[[Path], None]
) -> None:
    with host.workspace() as workspace:
        change(workspace.data)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 1
        found = described(workspace.data)
    assert found == host.fetched_again()


def test_folders_are_made_anew_and_what_is_no_object_is_left_behind(host: Host) -> None:
    with host.workspace() as workspace:
        data = workspace.data
        (data / "sub").chmod(0o777)
        os.setxattr(data / "sub", "user.origin", b"x")
        data.chmod(0o755)
        (data / "link").symlink_to("a")
        (data / "folder/inner").mkdir(parents=True)
        (data / "empty").rmdir()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(data / "socket"))
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        found = described(workspace.data)
    assert found == host.fetched_again()


def test_an_open_folder_leads_only_to_what_is_removed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with host.workspace() as workspace:
        monkeypatch.chdir(workspace.data / "sub")
        descriptor = os.open(workspace.data / "sub", os.O_RDONLY)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        for folder in (descriptor, None):
            with pytest.raises(FileNotFoundError):
                os.open("late", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
        assert {path.name for path in (workspace.data / "sub").iterdir()} == {"b", "deep"}
    os.close(descriptor)
    monkeypatch.undo()


def test_times_are_those_of_a_download(host: Host) -> None:
    with host.workspace() as workspace:
        os.utime(workspace.data / "a", (0, 0))
        os.utime(workspace.data / "sub/b", (2**33, 2**33))
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        times = [(workspace.data / path).stat().st_mtime for path in ("a", "sub/b")]
        assert max(abs(found - time.time()) for found in times) < 60


def test_a_program_that_opens_a_file_while_it_is_taken_gets_nothing_of_the_workspace(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the lease; the signal that tells of it must not end the executor."""
    with host.workspace() as workspace:
        pass
    data, opened = host.kept_folder / "data", threading.Event()
    digest = module._digest

    def write_late() -> None:
        with (data / "a").open("r+b") as file:
            opened.set()
            file.write(b"late")

    def hash_and_wait(descriptor: int, size: int) -> str:
        if not writer.ident:
            writer.start()
            time.sleep(0.2)
            assert not opened.is_set()
        return digest(descriptor, size)

    writer = threading.Thread(target=write_late)
    monkeypatch.setattr(module, "_digest", hash_and_wait)
    with host.workspace() as workspace:
        writer.join(20)
        assert opened.is_set()
        assert host.counts["kept_files"] == 2
        assert (workspace.data / "a").read_bytes() == A


def test_a_file_system_without_leases_gives_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    with host.workspace():
        pass
    monkeypatch.setattr(module, "_lease", refuse)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 0
        found = described(workspace.data)
    assert found == host.fetched_again()


def test_another_umask_gives_nothing(host: Host) -> None:
    with host.workspace():
        pass
    before = os.umask(0o077)
    try:
        with host.workspace() as workspace:
            assert host.counts["kept_files"] == 0
            assert (workspace.data / "a").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("name", "value"), [("PIECE", len(A) - 1), ("DIGEST", re.compile("a token"))]
)
def test_large_objects_and_those_without_a_digest_are_downloaded(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    with host.workspace():
        pass
    monkeypatch.setattr(module, name, value)
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 0
        found = described(workspace.data)
    assert found == host.fetched_again()


def test_an_empty_object_is_downloaded(host: Host) -> None:
    host.write({"in/nothing": b""})
    with host.workspace():
        pass
    with host.workspace() as workspace:
        assert host.counts["kept_files"] == 3
        assert (workspace.data / "nothing").read_bytes() == b""


def test_large_files_go_to_the_object_cache_first(host: Host) -> None:
    host.write({"in/large": LARGE})
    with host.workspace() as workspace:
        inode = (workspace.data / "large").stat().st_ino
    assert host.cache is not None
    assert take(host.cache, remote_of(LARGE)) == LARGE
    (entry,) = host.cache.folder.glob("objects/*/*")
    assert entry.stat().st_ino == inode
    with host.workspace() as workspace:
        assert (workspace.data / "large").read_bytes() == LARGE
        assert host.counts["kept_files"] == 3


@pytest.mark.parametrize("other", [{"prefix": "in/sub"}, {"repository": "other"}])
def test_of_another_prefix_or_repository_nothing_is_taken(
    host: Host, other: dict[str, str]
) -> None:
    first = host.ref
    host.write(FILES, "other")
    second = host.ref if "repository" in other else first
    host.ref = first
    with host.workspace():
        pass
    host.ref = second
    with host.workspace(**other):
        assert host.counts["kept_files"] == 0
        assert [path.name for path in host.root.iterdir()] == ["task-1-exec-2"]


def test_a_failed_attempt_is_not_kept_and_uses_up_what_was(host: Host) -> None:
    with host.workspace():
        pass
    with pytest.raises(RuntimeError), host.workspace():
        raise RuntimeError("the body failed")
    assert host.counts["kept_files"] == 3
    assert list(host.root.iterdir()) == []


def test_a_data_folder_that_was_replaced_is_not_kept(host: Host) -> None:
    with host.workspace() as workspace:
        shutil.rmtree(workspace.data)
        workspace.data.mkdir()
    assert list(host.root.iterdir()) == []


def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    host = Host(tmp_path, None)
    with host.workspace():
        pass
    assert list(host.root.iterdir()) == []


@pytest.mark.parametrize(("limit", "min_free"), [(1 << 30, 1 << 60), (4096, 0)])
def test_a_short_disk_or_a_small_limit_keeps_nothing(
    tmp_path: Path, limit: int, min_free: int
) -> None:
    host = Host(tmp_path, ObjectCache(tmp_path / "cache", limit, min_free=min_free))
    with host.workspace():
        pass
    assert list(host.root.iterdir()) == []


def test_workspaces_keep_nothing_unless_they_are_given_where(host: Host) -> None:
    workspaces = LocalWorkspaces(host.root, host.workspaces.engine)
    given = WorkspaceInput(repository=REPOSITORY, branch="main", ref_type="commit", ref=host.ref)
    with workspaces.open(an_execution()) as workspace:
        workspace.fetch(given, "in")
    assert list(host.root.iterdir()) == []


def test_it_is_dropped_after_its_time(host: Host) -> None:
    assert host.kept.seconds_left() is None
    with host.workspace():
        pass
    left = host.kept.seconds_left()
    assert left is not None
    assert 0 < left <= module.KEPT_SECONDS
    host.kept.drop()
    assert host.kept.seconds_left() is None
    assert list(host.root.iterdir()) == []


def test_no_sweep_touches_it_while_its_executor_lives(host: Host) -> None:
    with host.workspace():
        pass
    folder = host.kept_folder
    command = [sys.executable, "-c", SWEEP, str(host.root), str(os.getpid())]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout.split() == ["live", "live"]
    assert folder.is_dir()


SWEEP = """
import sys
from pathlib import Path
from perago.transfer.sweep import clear_kept, sweep
root, pid = Path(sys.argv[1]), int(sys.argv[2])
for report in (sweep(root), clear_kept(root, pid, seconds=0)):
    print(*(entry.fate for entry in report.entries))
"""


# It is killed while it keeps a workspace.
EXECUTOR = """
import os, signal, sys
from pathlib import Path
from test_kept import Host, ObjectCache
folder = Path(sys.argv[1])
host = Host(folder, ObjectCache(folder / "cache", 1 << 30))
with host.workspace():
    pass
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("by_pid", [True, False])
def test_what_a_dead_executor_kept_is_removed(tmp_path: Path, by_pid: bool) -> None:
    # Not a fork of this process, whose other threads may hold locks that the child would wait for.
    python_path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", EXECUTOR, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    pid = int(ended.stdout)
    (folder,) = (tmp_path / "root").iterdir()
    assert folder.name.startswith(".new-kept-")
    assert clear_kept(tmp_path / "root", pid + 1).entries == ()
    report = clear_kept(tmp_path / "root", pid) if by_pid else sweep(tmp_path / "root")
    assert report.of(Fate.REMOVED) == [folder]
    assert list((tmp_path / "root").iterdir()) == []


def test_a_root_that_is_gone_has_nothing_to_clear(tmp_path: Path) -> None:
    assert clear_kept(tmp_path / "missing", 1).entries == ()


def test_a_lease_that_is_not_there_any_more_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with file.open("rb") as opened:
        module._lease(opened.fileno())
        assert module._is_leased(opened.fileno())
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        assert not module._is_leased(opened.fileno())
