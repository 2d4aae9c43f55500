"""Only the process that was recorded is ended, and it is ended for sure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from perago.servers.process import ProcessId, end, wait_gone

_STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)"
# Ends on SIGTERM, and leaves a child that does not.
_PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-uc", {_STUBBORN!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
time.sleep(60)
"""


class Nursery:
    """Starts Python programs that have said one line, and reaps them at the end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, program: str) -> tuple[ProcessId, str]:
        process = self._stack.enter_context(
            subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True)
        )
        self._stack.callback(process.kill)
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        identity = ProcessId.of(process.pid)
        assert identity is not None
        return identity, line


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with ExitStack() as stack:
        yield Nursery(stack)


def test_a_process_is_asked_to_end(nursery: Nursery) -> None:
    polite, _ = nursery.start("print('up'); import time; time.sleep(60)")
    assert polite.alive
    assert end([polite]) == []
    assert not polite.alive


def test_a_process_that_does_not_listen_is_killed(nursery: Nursery) -> None:
    stubborn, _ = nursery.start(_STUBBORN)
    assert end([stubborn], grace=0.2) == []
    assert not stubborn.alive


def test_the_children_end_as_well(nursery: Nursery) -> None:
    parent, line = nursery.start(_PARENT)
    child = ProcessId.of(int(line))
    assert child is not None
    assert end([parent]) == []
    assert not child.alive


def test_a_pid_that_now_belongs_to_another_is_left_alone(nursery: Nursery) -> None:
    stranger, _ = nursery.start("print('up'); import time; time.sleep(60)")
    stale = ProcessId(stranger.pid, stranger.created - 3600)
    assert not stale.alive
    assert end([stale], grace=0.1) == []
    assert wait_gone([stranger], 0.2) == [stranger]


def test_no_process_has_no_identity() -> None:
    assert ProcessId.of(2**22 + 1) is None
