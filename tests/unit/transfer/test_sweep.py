"""Sweeping a workspace root: real processes hold the locks, real signals end them."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.identity import Attempt, Claim, Execution
from perago.transfer.sweep import Fate, SweepReport, clear, sweep
from perago.transfer.workspaces import local_directory
from support.trees import deep_folder
from support.waiting import end

HOLD = """
import sys
from pathlib import Path
from perago.protocol.identity import Attempt, Claim, Execution
from perago.transfer.workspaces import local_directory

execution = Execution(Claim(Attempt("wf", sys.argv[2], 0, "step"), "token"), sys.argv[3])
with local_directory(Path(sys.argv[1]), execution) as directory:
    (directory.data / "deep" / "er").mkdir(parents=True)
    (directory.data / "deep" / "er" / "file.txt").write_text("x")
    print(directory.path, flush=True)
    sys.stdin.readline()
"""

SWEEP = """
import json, sys
from pathlib import Path
from perago.transfer.sweep import sweep

print("ready", flush=True)
sys.stdin.readline()
report = sweep(Path(sys.argv[1]))
print(json.dumps([(str(entry.path), entry.fate) for entry in report.entries]))
"""


class Owner:
    """A process that runs an execution: it made its directory and holds the lock."""

    def __init__(self, root: Path) -> None:
        self.execution = Execution(
            Claim(Attempt("wf", str(uuid.uuid4()), 0, "step"), "token"), uuid.uuid4().hex
        )
        self.process = start(HOLD, str(root), self.execution.attempt.task_id, self.execution.id)
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())

    def kill(self) -> Path:
        self.process.kill()
        self.process.wait(20)
        return self.path


def start(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Callable[[], Owner]]:
    owners: list[Owner] = []

    def make() -> Owner:
        owners.append(Owner(tmp_path))
        return owners[-1]

    yield make
    for one in owners:
        end(one.process)


@pytest.fixture
def orphan(owner: Callable[[], Owner]) -> Callable[[], Path]:
    """Makes the directory of an execution that was killed."""
    return lambda: owner().kill()


def fates(report: SweepReport) -> dict[str, Fate]:
    return {entry.path.name: entry.fate for entry in report.entries}


def change_marker(folder: Path, **changes: object) -> None:
    marker = folder / ".perago-attempt.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **changes}))


def make_old(folder: Path) -> None:
    os.utime(folder, (1_000_000_000, 1_000_000_000))


def test_a_killed_execution_is_swept_and_a_live_one_is_not(
    tmp_path: Path, owner: Callable[[], Owner], orphan: Callable[[], Path]
) -> None:
    live, dead = owner(), orphan()

    report = sweep(tmp_path)

    assert fates(report) == {live.path.name: Fate.LIVE, dead.name: Fate.REMOVED}
    assert list(tmp_path.iterdir()) == [live.path]
    assert (live.path / "data" / "deep" / "er" / "file.txt").read_text() == "x"


def test_a_live_one_is_swept_once_its_process_is_gone(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    live = owner()
    assert sweep(tmp_path).of(Fate.LIVE) == [live.path]
    live.kill()
    assert sweep(tmp_path).of(Fate.REMOVED) == [live.path]


def test_a_stopped_process_still_lives(tmp_path: Path, owner: Callable[[], Owner]) -> None:
    live = owner()
    live.process.send_signal(signal.SIGSTOP)
    assert sweep(tmp_path).of(Fate.LIVE) == [live.path]


def test_a_directory_of_an_earlier_boot_is_swept(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    folder = orphan()
    change_marker(folder, boot=1, pid=1)
    assert sweep(tmp_path).of(Fate.REMOVED) == [folder]


def test_a_directory_of_another_host_is_left_alone(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    folder = orphan()
    change_marker(folder, host=f"not-{socket.gethostname()}")

    report = sweep(tmp_path)

    assert report.of(Fate.FOREIGN) == [folder]
    assert (folder / "data").is_dir()


DAMAGED = [
    *[b"", b"[]", b"null", b"7", b'{"host": "', b"\x00" * 10_000, b"\xff\xfe{}", b"[" * 65_000],
    *[b'{"a":' * 10_000, b"9" * 60_000, b" " * (1 << 20) + b"{}", b'{"execution_id": "x"}'],
    *[b'{"execution_id": "x", "host": ["here"]}', b'{"execution_id": "x", "host": 1e999}'],
]


def copies(pattern: Path, number: int) -> list[Path]:
    """Make directories like one of an ended execution: as many processes would take long."""
    made = [pattern.with_name(f"copy-{index:03}") for index in range(number)]
    for copy in made:
        copy.mkdir()
        for name in (".perago-attempt.json", ".perago-lock"):
            (copy / name).write_bytes((pattern / name).read_bytes())
        (copy / "data").mkdir()
        (copy / "data" / "file").touch()
    return made


def test_directories_with_damaged_markers_are_left_alone_and_the_sweep_goes_on(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    pattern = orphan()
    missing, folder, pipe, *damaged = copies(pattern, 3 + len(DAMAGED))
    for copy in (missing, folder, pipe):
        (copy / ".perago-attempt.json").unlink()
    (folder / ".perago-attempt.json").mkdir()
    os.mkfifo(pipe / ".perago-attempt.json")
    for copy, text in zip(damaged, DAMAGED, strict=True):
        (copy / ".perago-attempt.json").write_bytes(text)

    report = sweep(tmp_path)

    assert report.of(Fate.UNMARKED) == [missing, folder, pipe, *damaged]
    assert report.of(Fate.REMOVED) == [pattern]
    assert all((copy / "data" / "file").exists() for copy in damaged)


def test_numbers_in_a_marker_that_are_none_do_not_end_the_sweep(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    pattern = orphan()
    numbers = [10**30, -5, True, "1", [1], None, 1.5]
    folders = copies(pattern, 2 * len(numbers))
    pids, boots = folders[::2], folders[1::2]
    for folder, number in zip(pids, numbers, strict=True):
        change_marker(folder, pid=number)
    for folder, number in zip(boots, numbers, strict=True):
        change_marker(folder, boot=number)
    for folder in (*pids, *boots):
        (folder / ".perago-lock").unlink()

    report = sweep(tmp_path)

    assert report.failures == []
    assert {entry.fate for entry in report.entries} == {Fate.LIVE, Fate.REMOVED}


def test_a_host_name_in_a_marker_gives_a_reason_that_is_short_and_can_be_logged(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    folder = orphan()
    change_marker(folder, host="\udcff\n" * 5000)
    (entry,) = sweep(tmp_path).entries
    assert entry.fate is Fate.FOREIGN
    assert len(entry.reason.encode()) < 500
    assert "\n" not in entry.reason


def test_links_are_neither_followed_nor_removed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, orphan: Callable[[], Path]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    outside = orphan().rename(elsewhere / "outside")
    (tmp_path / "link").symlink_to(outside)

    assert sweep(tmp_path).entries == ()
    assert (outside / "data").is_dir()


def test_links_inside_a_dead_directory_go_and_their_targets_stay(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, orphan: Callable[[], Path]
) -> None:
    target = tmp_path_factory.mktemp("target")
    (target / "precious").write_text("x")
    folder = orphan()
    (folder / "link").symlink_to(target)
    (folder / "data" / "link").symlink_to(target)

    assert sweep(tmp_path).of(Fate.REMOVED) == [folder]
    assert (target / "precious").exists()


@pytest.mark.parametrize("name", [".perago-attempt.json", ".perago-lock"])
def test_a_marker_or_lock_that_is_a_link_is_reported(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    orphan: Callable[[], Path],
    name: str,
) -> None:
    folder = orphan()
    moved = (folder / name).rename(tmp_path_factory.mktemp("elsewhere") / "moved")
    (folder / name).symlink_to(moved)

    assert [entry.path for entry in sweep(tmp_path).failures] == [folder]
    assert (folder / "data").is_dir()


def test_a_live_execution_whose_body_removed_the_lock_file_is_left_alone(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    live = owner()
    (live.path / ".perago-lock").unlink()
    assert sweep(tmp_path).of(Fate.LIVE) == [live.path]
    live.kill()
    assert sweep(tmp_path).of(Fate.REMOVED) == [live.path]


@pytest.mark.parametrize("left", [[], [".perago-lock"], [".perago-lock", ".perago-attempt.json"]])
def test_an_unfinished_directory_is_swept_when_it_is_old(tmp_path: Path, left: list[str]) -> None:
    folder = tmp_path / ".new-task-execution"
    folder.mkdir()
    for name in left:
        (folder / name).touch()
    assert sweep(tmp_path).of(Fate.YOUNG) == [folder]

    make_old(folder)
    assert sweep(tmp_path).of(Fate.REMOVED) == [folder]
    assert not folder.exists()


def test_an_unfinished_directory_whose_lock_is_held_is_left_alone_however_old(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    live = owner()
    folder = live.path.rename(tmp_path / f".new-{live.path.name}")
    make_old(folder)
    assert sweep(tmp_path).of(Fate.LIVE) == [folder]


def test_a_folder_that_only_looks_unfinished_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".new-photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    make_old(folder)
    assert sweep(tmp_path).of(Fate.UNMARKED) == [folder]
    assert (folder / "cat.jpg").exists()


def test_a_root_that_is_not_there_is_swept_already(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == SweepReport()


def test_a_failure_is_reported_and_does_not_stop_the_sweep(
    tmp_path: Path, orphan: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted([orphan(), orphan()])
    # Root may remove anything, so a folder that cannot be removed is made by a failing rmdir.
    rmdir = os.rmdir

    def refuse(name: str, *, dir_fd: int) -> None:
        if first.name in name:
            raise PermissionError("held by somebody")
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", refuse)
    report = sweep(tmp_path)

    assert report.of(Fate.REMOVED) == [second]
    assert [(entry.path, entry.reason) for entry in report.failures] == [
        (first, "PermissionError: held by somebody")
    ]


def test_folders_that_a_body_made_read_only_are_swept(
    tmp_path: Path, orphan: Callable[[], Path]
) -> None:
    folder = orphan()
    (folder / "data" / "deep").chmod(0o500)
    folder.chmod(0o500)
    assert sweep(tmp_path).of(Fate.REMOVED) == [folder]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def die(*_: object, **__: object) -> None:
    raise Killed


REMOVING = ["unlink", "rmdir", "rename", "scandir", "fchmod"]


@pytest.mark.parametrize("call", REMOVING)
def test_a_sweep_that_was_killed_half_way_is_finished_by_the_next(
    tmp_path: Path,
    orphan: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    orphan()
    real, calls = getattr(os, call), []

    def die_at_last(*given: object, **named: object) -> object:
        calls.append(given)
        # The root is listed before anything is removed.
        if call == "scandir" and len(calls) == 1:
            return real(*given, **named)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, call, die_at_last)
        with pytest.raises(Killed):
            sweep(tmp_path)
    assert_swept_later(tmp_path)


@pytest.mark.parametrize("call", REMOVING)
def test_an_execution_that_is_killed_while_it_removes_its_directory_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    execution = Execution(Claim(Attempt("wf", "task", 0, "step"), "token"), "execution")
    with monkeypatch.context() as patched, ExitStack() as running:
        directory = running.enter_context(local_directory(tmp_path, execution))
        (directory.data / "file.txt").touch()
        patched.setattr(os, call, die)
        with pytest.raises(Killed):
            running.close()
    assert_swept_later(tmp_path)


def assert_swept_later(root: Path) -> None:
    for folder in root.iterdir():
        make_old(folder)
    assert len(sweep(root).of(Fate.REMOVED)) == 1
    assert list(root.iterdir()) == []


def test_two_sweepers_at_once_remove_every_dead_directory_and_no_live_one(
    tmp_path: Path, owner: Callable[[], Owner], orphan: Callable[[], Path]
) -> None:
    live = owner()
    pattern = orphan()
    copies(pattern, 150)

    sweepers = [start(SWEEP, str(tmp_path)) for _ in range(2)]
    for sweeper in sweepers:
        assert sweeper.stdout is not None
        assert sweeper.stdout.readline() == "ready\n"
    for sweeper in sweepers:
        assert sweeper.stdin is not None
        sweeper.stdin.write("go\n")
        sweeper.stdin.flush()
    seen = [dict(json.loads(sweeper.communicate(timeout=60)[0])) for sweeper in sweepers]

    assert list(tmp_path.iterdir()) == [live.path]
    fates_seen = {fate for report in seen for fate in report.values()}
    assert Fate.FAILED not in fates_seen
    assert all(report[str(live.path)] == Fate.LIVE for report in seen)
    removed = [path for report in seen for path, fate in report.items() if fate == Fate.REMOVED]
    assert len(removed) == len(set(removed)) == 151


def test_clear_removes_the_directory_of_one_dead_execution_only(
    tmp_path: Path, owner: Callable[[], Owner], orphan: Callable[[], Path]
) -> None:
    other, dead = orphan(), owner()
    dead.kill()
    assert clear(tmp_path, dead.execution).of(Fate.REMOVED) == [dead.path]
    assert list(tmp_path.iterdir()) == [other]


def test_clear_gives_up_on_a_lock_that_stays_held(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    live = owner()
    assert clear(tmp_path, live.execution, seconds=0.2).of(Fate.LIVE) == [live.path]
    assert (live.path / "data").is_dir()


def test_clear_removes_a_directory_that_was_just_being_made(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    dead = owner()
    folder = dead.kill().rename(tmp_path / f".new-{dead.path.name}")
    assert clear(tmp_path, dead.execution).of(Fate.REMOVED) == [folder]


def test_clear_of_an_execution_that_left_nothing_does_nothing(tmp_path: Path) -> None:
    execution = Execution(Claim(Attempt("wf", "task", 0, "step"), "token"), "execution")
    assert clear(tmp_path, execution) == SweepReport()


def move_to_another_host(directory: Path) -> Path:
    """Make a directory one that was made on another host."""
    marker = directory / ".perago-attempt.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "host": "elsewhere"}))
    return directory


def test_folders_of_other_hosts_are_swept_when_nothing_changed_in_them_for_long(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    folder = move_to_another_host(owner().kill())
    time.sleep(1.0)
    # A change anywhere in it counts, whatever modification time it has.
    deep = folder / "data" / "deep" / "er" / "file.txt"
    os.utime(deep, (0, 0))
    assert sweep(tmp_path).of(Fate.FOREIGN) == [folder]
    assert sweep(tmp_path, other_hosts_after=0.9).of(Fate.YOUNG) == [folder]
    time.sleep(1.0)
    assert sweep(tmp_path, other_hosts_after=0.9, dry_run=True).of(Fate.REMOVABLE) == [folder]
    assert deep.exists()
    assert sweep(tmp_path, other_hosts_after=0.9).of(Fate.REMOVED) == [folder]
    assert not folder.exists()


def test_they_are_swept_also_if_their_paths_are_longer_than_the_system_takes(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    folder = move_to_another_host(owner().kill())
    with deep_folder(folder / "data", 1200, "deep-down"):
        assert sweep(tmp_path, other_hosts_after=60.0).of(Fate.YOUNG) == [folder]
        assert sweep(tmp_path, other_hosts_after=-60.0).of(Fate.REMOVED) == [folder]


def test_what_changed_at_the_bottom_of_a_tree_keeps_it(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    folder = move_to_another_host(owner().kill())
    with deep_folder(folder / "data", 20):
        (folder / "data" / "e" / "f").mkdir(parents=True)
        time.sleep(0.5)
        (folder.joinpath("data", *["d"] * 20) / "file").chmod(0o600)
        assert sweep(tmp_path, other_hosts_after=0.4).of(Fate.YOUNG) == [folder]


def test_a_folder_in_them_that_cannot_be_read_keeps_none(
    tmp_path: Path, owner: Callable[[], Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = move_to_another_host(owner().kill())
    opens, scans = os.open, os.scandir

    def refuse(path: Any, *rest: Any, call: Any, **options: Any) -> Any:
        if str(path).endswith("er") and not refused:
            refused.append(path)
            raise PermissionError(errno.EACCES, "Permission denied")
        return call(path, *rest, **options)

    refused: list[Any] = []
    monkeypatch.setattr(os, "open", partial(refuse, call=opens))
    monkeypatch.setattr(os, "scandir", partial(refuse, call=scans))
    assert sweep(tmp_path, other_hosts_after=-60.0).of(Fate.REMOVED) == [folder]
    assert refused


def test_a_folder_of_another_host_whose_lock_is_held_is_kept_whatever_its_age(
    tmp_path: Path, owner: Callable[[], Owner]
) -> None:
    folder = move_to_another_host(owner().path)
    assert sweep(tmp_path, other_hosts_after=0.0).of(Fate.LIVE) == [folder]
