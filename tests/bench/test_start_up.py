"""How soon the command line answers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.bench.results import Book
from support.bench.rounds import hold, seconds_of
from support.bench.table import OURS

pytestmark = [pytest.mark.timeout(120)]


def seconds(*command: str) -> dict[str, float]:
    return {
        "answer": seconds_of(
            lambda: subprocess.run(command, check=True, capture_output=True, timeout=30)
        )
    }


@pytest.mark.bench("start-up")
def test_help_answers_quickly(rounds: int, book: Book) -> None:
    contest = hold(
        rounds,
        {
            OURS: lambda _: seconds(sys.executable, "-m", "perago", "--help"),
            "bare interpreter": lambda _: seconds(sys.executable, "-c", "pass"),
        },
        warm_up=True,
    )
    book.record("start-up", contest, {"answer": contest.middle("answer", OURS)})
