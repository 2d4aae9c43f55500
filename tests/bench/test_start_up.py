"""How soon the command line answers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(60)]


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def test_help_answers_quickly() -> None:
    bare = statistics.median(seconds(sys.executable, "-c", "pass") for _ in range(7))
    shown = statistics.median(seconds(sys.executable, "-m", "perago", "--help") for _ in range(7))
    print(f"\nperago --help: {shown:.3f} s (bare interpreter {bare:.3f} s); to reach: 0.3 s")
