"""What of a long transfer is posted to the task log, and when."""

from __future__ import annotations

from perago.errors import BackendUnavailableError
from perago.http_client import seconds_left
from perago.masking import remember_secret
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed
from perago.worker.channel import ANSWER_SECONDS
from perago.worker.report import Progress, task_log


def partition(number: int) -> PhaseEvent:
    return PhaseEvent("partition_done", "download", 1.5, {"partition": f"{number}/9"})


class Desk:
    """A clock and a task log."""

    def __init__(self) -> None:
        self.now = 0.0
        self.posted: list[str] = []
        self.progress = Progress(self.posted.append, lambda: self.now)


def test_partitions_are_posted_together_now_and_then() -> None:
    desk = Desk()
    desk.progress.note(partition(1))
    desk.now = 9.9
    desk.progress.note(partition(2))
    assert desk.posted == []
    desk.now = 10.0
    desk.progress.note(partition(3))
    assert desk.posted == [
        "download 1.500 s partition=1/9; download 1.500 s partition=2/9; "
        "download 1.500 s partition=3/9"
    ]
    desk.progress.note(partition(4))
    desk.progress.flush()
    desk.progress.flush()
    assert desk.posted[1:] == ["download 1.500 s partition=4/9"]


def test_what_a_body_tells_is_posted_too() -> None:
    desk = Desk()
    desk.progress.note(PhaseEvent("task_progress", "body", None, {"done": 3, "total": 9}))
    desk.progress.note(PhaseEvent("task_progress", "body", None, {"done": 4, "total": None}))
    desk.progress.flush()
    assert desk.posted == ["progress: 3 of 9; progress: 4"]


def test_nothing_else_is_progress() -> None:
    desk = Desk()
    desk.now = 100.0
    desk.progress.note(PhaseEvent("phase_ended", "download", 2.0))
    desk.progress.flush()
    assert desk.posted == []


def test_a_conductor_that_does_not_answer_stops_nothing() -> None:
    def refuse(_: str) -> None:
        raise BackendUnavailableError("no answer")

    progress = Progress(refuse)
    progress.note(partition(1))
    progress.flush()


def test_a_conductor_that_is_silent_does_not_keep_the_supervisor_from_answering() -> None:
    """The thread that posts is the one that answers an executor, whose questions do not wait."""
    left: list[float] = []
    progress = Progress(lambda _: left.append(seconds_left()))
    progress.note(partition(1))
    progress.flush()
    assert left[0] < ANSWER_SECONDS / 2


def test_the_last_entry_has_the_phases_alone() -> None:
    events = [
        PhaseEvent("phase_started", "download"),
        partition(1),
        PhaseEvent("phase_ended", "download", 2.0, {"objects": 3}),
    ]
    assert task_log(events, Completed({})) == ["download 2.000 s objects=3"]


def test_progress_has_no_secret_and_no_control_character() -> None:
    remember_secret("secret-of-progress")
    desk = Desk()
    details = {"key": "\x1b secret-of-progress"}
    desk.progress.note(PhaseEvent("partition_done", "download", 1.0, details))
    desk.progress.flush()
    assert desk.posted == ["download 1.000 s key=\\x1b ********"]
