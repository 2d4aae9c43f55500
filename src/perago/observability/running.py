"""What a worker runs at this moment, as it tells others: the dashboard, and `/running`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class PhaseView(_View):
    """A phase that ended, with its time; ``error`` is the class of what it failed with."""

    phase: str
    seconds: float = Field(ge=0)
    error: str | None = None


class RunningView(_View):
    """One attempt under way."""

    task: str
    task_id: str
    workflow_id: str
    retry: int = Field(ge=0)
    slot: int = Field(ge=0)
    phase: str
    # Since the claim, on the worker's clock.
    seconds: float = Field(ge=0)
    phases: tuple[PhaseView, ...] = ()
    # What the body told last with ``progress(done, total)``.
    progress: str | None = None
    # Where Spark shows its jobs, if a worker serves that. A page links to it.
    spark_ui: str | None = Field(default=None, pattern=r"^https?://[\w.:/\[\]-]+$")


RUNNING = TypeAdapter(list[RunningView])


class WorkerState(Protocol):
    """What a worker tells about itself while it runs; raises ``BackendError`` if it is away."""

    @property
    def name(self) -> str: ...
    def metrics(self) -> str:
        """The text that Prometheus scrapes."""
        ...

    def running(self) -> Sequence[RunningView]: ...
