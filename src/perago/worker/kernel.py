"""Ask the kernel for what keeps processes from outliving their worker, where it offers it.

Everything here is best effort and says whether it worked: on systems without ``prctl`` (anything
but Linux) the worker falls back to ending process groups, and says so in its log.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Above the supervisor's own score, whatever that is, and below "always first" (1000).
_OOM_SCORE_ADJ = 500
_PAUSE_SECONDS = 0.01


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, also one with its own session.

    None can then leave the tree below this process, so walking the tree finds them all.
    """
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Have the kernel kill this process when the thread that forked it ends.

    It takes no turn of this process: it also ends a body that never lets go of the interpreter.
    """
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def prefer_for_oom_killer() -> bool:
    """Have the kernel end this process, and what it starts, before the supervisor."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ), encoding="ascii")
    except OSError:
        return False
    return True


def children() -> frozenset[int]:
    """The pids of this process's own children."""
    return frozenset(process.pid for process in psutil.Process().children())


def end_descendants(seconds: float, keep: frozenset[int] = frozenset()) -> int:
    """Kill every descendant of this process and reap them; return how many were running.

    The children in ``keep`` and what is below them stay. What is forked while this runs is found in
    the next round. Processes of other users and those in an uninterruptible wait may remain when
    ``seconds`` have passed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while found := _descendants(keep):
        for process in found:
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    killed.add(process.pid)
        _reap()
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    return len(killed)


def _descendants(keep: frozenset[int]) -> list[psutil.Process]:
    if not _has_children():  # the usual case, for which no process table is read
        return []
    found = []
    for child in psutil.Process().children():
        if child.pid not in keep:
            found.append(child)
            with contextlib.suppress(psutil.Error):
                found += child.children(recursive=True)
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
