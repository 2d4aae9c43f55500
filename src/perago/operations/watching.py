"""Watch what runs now: attempts that are claimed, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from perago.conductor.inspection import TaskView
from perago.errors import NotFoundError
from perago.names import OPEN_STATUSES

_INPUTS = ({"params"}, {"workspace", "params"}, {"workspace", "params", "inputs"})


class WatchedConductor(Protocol):
    """What is read of Conductor."""

    def running(self) -> Sequence[TaskView]: ...
    def task(self, task_id: str) -> TaskView: ...


@dataclass(frozen=True, slots=True)
class Sighting:
    """An attempt that began, ended, was given back to the queue or vanished."""

    what: Literal["claimed", "ended", "requeued", "removed"]
    task: TaskView


def find_running(conductor: WatchedConductor) -> list[TaskView]:
    """The attempts that run now. Tasks whose input is not of Perago's form are others'."""
    return [task for task in conductor.running() if set(task.input) in _INPUTS]


def watch(conductor: WatchedConductor, pause: Callable[[], None]) -> Iterator[Sighting]:
    """Tell of attempts as they begin and end, for ever; ``pause`` waits between two looks."""
    known: dict[str, TaskView] = {}
    while True:
        now = {task.task_id: task for task in find_running(conductor)}
        for task_id, before in list(known.items()):
            if task_id in now:
                continue
            if (sighting := _look_again(conductor, before)) is not None:
                del known[task_id]
                yield sighting
        for task in now.values():
            last = known.get(task.task_id)
            known[task.task_id] = task
            # A rerun and a redelivery keep the id, and have another claim.
            if last is None or last.claim != task.claim:
                yield Sighting("claimed", task)
        pause()


def _look_again(conductor: WatchedConductor, before: TaskView) -> Sighting | None:
    """What became of an attempt that was not found; None if it runs all the same."""
    try:
        task = conductor.task(before.task_id)
    except NotFoundError:
        return Sighting("removed", before)
    if task.status not in OPEN_STATUSES:
        return Sighting("ended", task)
    return Sighting("requeued", task) if task.status == "SCHEDULED" else None
