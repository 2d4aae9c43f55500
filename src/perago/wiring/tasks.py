"""The tasks of modules, which may import the Python files that the settings name."""

from __future__ import annotations

from collections.abc import Sequence

from perago.settings import Settings
from perago.spark.files import SparkFiles
from perago.tasks import discover
from perago.tasks.definition import TaskDefinition


def load_tasks(settings: Settings, targets: Sequence[str]) -> list[TaskDefinition]:
    """Load the tasks named by ``MODULE`` or ``MODULE:task``; raises ``DefinitionError``."""
    SparkFiles.of(settings).make_importable()
    return discover.load_tasks(targets)


def inspect_targets(settings: Settings, targets: Sequence[str]) -> discover.Inspection:
    """Collect the tasks of modules, and all problems."""
    SparkFiles.of(settings).make_importable()
    return discover.inspect_targets(targets)
