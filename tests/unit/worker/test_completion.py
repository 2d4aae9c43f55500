"""The publish budget bounds the completion, also where Conductor takes requests and is silent."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import PublishBudget, TaskControls, task
from perago.conductor.client import ConductorAttempts
from perago.connections import ConductorConnection
from perago.observability.metrics import WorkerMetrics
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, Outcome
from perago.protocol.ports import Delivery
from perago.tasks.definition import TaskDefinition, definition_of
from perago.worker.context import Stopped, WorkerContext, completion_seconds
from support.garbage_server import GARBAGE, GarbageServer

# One request has 25 s of its own, and reads are tried four times.
_SECONDS = 1.0
DELIVERY = Delivery(Claim(Attempt("workflow", "task", 0, "step"), "token"), "concluded", {}, 60.0)


class Empty(BaseModel):
    """Nothing."""


@task(name="concluded", owner_email="tests@example.com")
def body(params: Empty) -> Empty:
    """Do nothing."""
    return params


@dataclass
class Concluded:
    events: list[PhaseEvent] = field(default_factory=list)
    output: str = ""
    started: float = 0.0
    was_renewed: bool = True


def with_budget(seconds: float | None) -> TaskDefinition:
    definition = definition_of(body)
    assert definition is not None
    budget = PublishBudget(2, 1, 5, seconds, 20, 30) if seconds is not None else None
    return replace(definition, controls=TaskControls(publish_budget=budget))


@pytest.mark.parametrize(
    ("budget", "lease", "seconds"), [(7.0, 60.0, 7.0), (None, 60.0, 60.0), (None, 1.0, 10.0)]
)
def test_the_budget_says_how_long_a_completion_may_take_and_else_the_lease(
    budget: float | None, lease: float, seconds: float
) -> None:
    delivery = replace(DELIVERY, response_timeout_seconds=lease)
    assert completion_seconds(delivery, with_budget(budget)) == seconds


@pytest.mark.parametrize("kind", ["silence", "a dripping body", "503 with nothing", "no answer"])
@pytest.mark.parametrize("ending", [Completed({}), Stopped.HANDED_BACK], ids=["done", "given back"])
def test_a_conductor_that_does_not_answer_holds_up_no_slot(
    tmp_path: Path, ending: Outcome | Stopped, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perago.worker.context.HAND_BACK_SECONDS", _SECONDS)
    with GarbageServer(GARBAGE[kind]) as server:
        conductor = ConductorAttempts(ConductorConnection(f"{server.url}/api"))
        context = WorkerContext(conductor, conductor, None, tmp_path, None, WorkerMetrics())
        began = time.monotonic()
        context.conclude(DELIVERY, with_budget(_SECONDS), Concluded(), ending)
        took = time.monotonic() - began
        conductor.close()
    assert context.lost.is_set()
    assert took < _SECONDS + 5.0
