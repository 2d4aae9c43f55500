"""Label the jobs of a session, so that Spark's UI reads like the product.

Spark's scheduler takes the group and the description of a job from the settings of its session, and
its tags from each request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from perago.protocol.identity import Execution
from perago.text import shorten

GROUP_SETTING = "spark.jobGroup.id"
DESCRIPTION_SETTING = "spark.job.description"
_ATTRIBUTE = "perago_labelled"
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Label:
    """Whose jobs they are."""

    task: str
    execution: Execution

    @property
    def group(self) -> str:
        """One group for each attempt."""
        return f"{_plain(self.task)} {_plain(self.execution.attempt.task_id)}"

    def description(self, phase: str) -> str:
        attempt = self.execution.attempt
        return (
            f"{_plain(self.task)}: {phase} (step {_plain(attempt.reference_name)} of workflow "
            f"{_plain(attempt.workflow_instance_id)}, attempt {_plain(attempt.task_id)}, "
            f"retry {attempt.retry_count})"
        )

    def tags(self, phase: str) -> list[str]:
        attempt = self.execution.attempt
        return [
            f"perago-task-{_plain(self.task)}",
            f"perago-workflow-{_plain(attempt.workflow_instance_id)}",
            f"perago-attempt-{_plain(attempt.task_id)}",
            f"perago-execution-{_plain(self.execution.id)}",
            f"perago-phase-{phase}",
        ]


def _plain(text: str) -> str:
    """Make a name fit into a tag: a comma would end it."""
    printable = "".join(it if it.isprintable() and it != "," else "_" for it in text)
    return shorten(printable, _LONGEST_NAME)


class Labelled:
    """A session whose jobs have a label with the phase in which each was started."""

    def __init__(self, session: Any, label: Label, phase: str) -> None:
        self._session = session
        self._label = label
        self.phase = phase
        self._described: str | None = None
        self._build: Callable[..., Any] = session.client._execute_plan_request_with_metadata
        session.client._execute_plan_request_with_metadata = self._labelled
        setattr(session.client, _ATTRIBUTE, self)
        session.conf.set(GROUP_SETTING, label.group)

    def ungroup(self) -> None:
        """Leave the group to Spark, which stops a streaming query by a group of its own."""
        self._session.conf.unset(GROUP_SETTING)

    def _labelled(self, *arguments: Any, **options: Any) -> Any:
        """Build a request to execute something; in whichever thread of the body."""
        phase = self.phase
        if phase != self._described:
            self._described = phase
            # Only a label: without it the request fails or succeeds by itself.
            with suppress(Exception):
                self._session.conf.set(DESCRIPTION_SETTING, self._label.description(phase))
        request = self._build(*arguments, **options)
        request.tags.extend(self._label.tags(phase))
        return request


def ungroup(session: Any) -> None:
    """Before a streaming query: its jobs must not be in the group of the session's."""
    labelled = getattr(session.client, _ATTRIBUTE, None)
    if isinstance(labelled, Labelled):
        labelled.ungroup()
