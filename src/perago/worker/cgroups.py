"""One control group (cgroup v2) for each executor, by which the kernel ends all that is in it.

A process cannot leave its group by a session of its own or by the death of its parents, so a group
also holds what is left when the warden itself is killed. Its name says whose it is: a start ends
the groups of supervisors that are dead. Everything here is best effort, bounded in time, and does
nothing where there is no such hierarchy, or none in which this user may make groups.
"""

from __future__ import annotations

import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
# Since Linux 5.14; before that, every process in the group is frozen and killed.
_KILL = "cgroup.kill"
_NAME = re.compile(r"perago-(?P<space>\d+)-(?P<pid>\d+)-(?P<started>\d+)-[0-9a-f]+")
_SECONDS = 2.0
_PAUSE_SECONDS = 0.005


def make() -> Path | None:
    """Make a group for one executor of this process; None where that cannot be done."""
    pid = os.getpid()
    with suppress(OSError, ValueError):
        name = f"perago-{_pid_space()}-{pid}-{_started(pid)}-{uuid.uuid4().hex[:12]}"
        for own in _own_groups():
            with suppress(OSError):
                (own / name).mkdir(mode=0o755)
                return own / name
    return None


def join(group: str) -> bool:
    """Put this process, and all that it will start, into a group; return whether it is there."""
    try:
        (Path(group) / "cgroup.procs").write_text("0", encoding="ascii")
    except OSError:
        return False
    return True


def leave(group: str) -> None:
    """Put this process back into the group above, and remove a group that is empty then."""
    if join(str(Path(group).parent)):
        _remove(Path(group))


def end(group: Path, seconds: float = _SECONDS) -> bool:
    """Kill every process in a group and remove it; return whether it is gone.

    Processes in an uninterruptible wait may remain when ``seconds`` have passed, and the group.
    """
    deadline = time.monotonic() + seconds
    while not _remove(group):
        if time.monotonic() > deadline:
            return False
        _kill(group)
        time.sleep(_PAUSE_SECONDS)
    return True


def sweep() -> list[str]:
    """End the groups of supervisors that are dead, with all processes; return their names."""
    swept = []
    with suppress(OSError, ValueError):
        space = _pid_space()
        for own in _own_groups():
            for group in _folders_in(own):
                name = _NAME.fullmatch(group.name)
                # A number of a process says nothing in another name space of processes.
                if name is None or int(name["space"]) != space:
                    continue
                if not _is_alive(int(name["pid"]), int(name["started"])) and end(group):
                    swept.append(group.name)
    return swept


def _own_groups() -> Iterator[Path]:
    """Find the folder of this process's group in each mounted hierarchy of version 2."""
    lines = (_PROC / "self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None or ".." in own:  # outside of what is mounted here
        return
    for line in (_PROC / "self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, kind = line.partition(" - ")
        root, point = mount.split()[3:5]
        root = root.rstrip("/")
        if kind.startswith("cgroup2 ") and f"{own}/".startswith(f"{root}/"):
            yield Path(point) / own[len(root) :].lstrip("/")


def _kill(group: Path) -> None:
    try:
        # Not created where it is missing: a folder of groups has no other files.
        with (group / _KILL).open("r+", encoding="ascii") as file:
            file.write("1")
    except OSError:
        _kill_each(group)


def _kill_each(group: Path) -> None:
    for folder in (group, *_groups_below(group)):
        with suppress(OSError):
            (folder / "cgroup.freeze").write_text("1", encoding="ascii")
        with suppress(OSError):
            for text in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                # 0 stands for a process of another name space; to kill it would kill ourselves.
                if int(text) > 1 and int(text) != os.getpid():
                    with suppress(OSError):
                        os.kill(int(text), signal.SIGKILL)


def _remove(group: Path) -> bool:
    for folder in (*reversed(_groups_below(group)), group):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _groups_below(group: Path) -> list[Path]:
    """List the groups that processes in a group have made, parents first."""
    return [Path(folder) / name for folder, names, _ in os.walk(group) for name in names]


def _folders_in(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _pid_space() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino


def _is_alive(pid: int, started: int) -> bool:
    """Whether a process lives and is the one that began then: numbers are used again."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        return _started(pid) == started
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _started(pid: int) -> int:
    """When a process began, in ticks since the machine did; -1 if it has ended."""
    text = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
    state, *fields = text.rpartition(") ")[2].split()
    return -1 if state in "ZX" else int(fields[18])
