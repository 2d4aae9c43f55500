"""Where a text is cut, no half of a secret is left that masking could not find any more."""

from __future__ import annotations

import logging
import os

import pytest
from structlog.testing import capture_logs

from perago.masking import remember_secret
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Failed, failure_of
from perago.worker import executor
from perago.worker.executor import TaskLogHandler
from perago.worker.output import TaskOutput
from perago.worker.report import task_log
from support.waiting import until

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
# Wherever it is cut, it is cut inside the secret.
FULL_OF_IT = f"{SECRET} " * 5000


@pytest.fixture(autouse=True)
def _remembered() -> None:
    remember_secret(SECRET)


def assert_without_parts(text: str) -> None:
    assert "********" in text
    parts = {SECRET[start : start + 8] for start in range(len(SECRET) - 7)}
    assert [part for part in parts if part in text] == []


def raised(text: str) -> Failed:
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        return failure_of(error)


def test_in_the_reason_and_the_trace_of_a_failure() -> None:
    failed = raised(FULL_OF_IT)
    assert_without_parts(failed.reason)
    assert_without_parts(failed.trace)


def test_in_the_task_log() -> None:
    event = PhaseEvent("phase_ended", "download", 1.0, {"message": FULL_OF_IT})
    for entry in task_log([event], raised(FULL_OF_IT), FULL_OF_IT):
        assert_without_parts(entry)


def test_in_what_a_task_logs_and_in_details_of_events() -> None:
    reported: list[str] = []
    handler = TaskLogHandler(reported.append)
    handler.begin()
    handler.emit(logging.makeLogRecord({"name": "tasks", "msg": FULL_OF_IT}))
    assert_without_parts(reported[0])
    assert_without_parts(executor._plain(FULL_OF_IT))


@pytest.mark.parametrize("end", ["", "\n"])
def test_in_what_a_task_prints(end: str) -> None:
    """A line of any length is read in pieces."""
    reading, writing = os.pipe()
    with capture_logs() as lines:
        output = TaskOutput(reading)
        output.begin()
        for begin in range(0, len(FULL_OF_IT), 1000):
            os.write(writing, FULL_OF_IT[begin : begin + 1000].encode())
        os.write(writing, end.encode())
        os.close(writing)
        until(lambda: not output._open, "the end of the output")
        assert_without_parts(output.finish())
    for line in lines:
        assert_without_parts(line["text"])
