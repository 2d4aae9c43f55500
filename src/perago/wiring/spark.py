"""Which Spark a worker uses, and for what: its Spark tasks, and moving large workspaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from perago.errors import ConfigurationError, SetupError
from perago.masking import environment_with_secrets
from perago.servers.toolchain import java
from perago.settings import Settings
from perago.spark.settings import ExternalSpark, ManagedSpark, SparkOptions, resolve_spark
from perago.tasks.definition import TaskDefinition
from perago.wiring.connections import lakefs_connection
from perago.wiring.ports import spark_threshold

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChosenSpark:
    """A Spark and what the worker wants from it."""

    spark: ExternalSpark | ManagedSpark
    runs_tasks: bool
    moves_workspaces: bool

    @property
    def is_checked_at_start(self) -> bool:
        """Whether a worker without it must not start.

        A server of the worker's own that may never be needed is not prepared either: that would
        fetch its jars.
        """
        return self.runs_tasks or isinstance(self.spark, ExternalSpark)

    @property
    def is_tried_at_start(self) -> bool:
        """Whether it is started before the first poll: a cluster can be wrong in many ways."""
        managed = isinstance(self.spark, ManagedSpark)
        return self.runs_tasks and managed and not self.spark.runs_here


def choose_spark(
    settings: Settings, definitions: Sequence[TaskDefinition], options: SparkOptions
) -> ChosenSpark | None:
    """The Spark of a worker with these tasks; None when it needs none or can use none."""
    runs_tasks = any(definition.kind == "spark" for definition in definitions)
    has_files = any(definition.kind == "file" for definition in definitions)
    try:
        lakefs = lakefs_connection(settings) if runs_tasks or has_files else None
    except ConfigurationError:
        # The preflight says so, together with everything else that is missing.
        return None
    environment = environment_with_secrets()
    spark = resolve_spark(settings, lakefs, options, environment) if lakefs else None
    if spark is not None:
        moves = has_files and bool(spark_threshold(settings)) and _sees_root(settings, spark)
        if runs_tasks or (moves and _can_start(spark)):
            return ChosenSpark(spark, runs_tasks, moves)
    if options.given:
        raise ConfigurationError(
            f"{', '.join(options.given)}: none of these tasks uses Spark",
            hint="Leave the options out. For the large workspaces of file tasks, a cluster is "
            "used where PERAGO_WORKSPACE_ROOT_SHARED is true.",
        )
    return None


def _sees_root(settings: Settings, spark: ExternalSpark | ManagedSpark) -> bool:
    """Whether the folder of the workspaces is there where Spark's functions run."""
    return settings.workspace_root_shared or spark.runs_here


def _can_start(spark: ExternalSpark | ManagedSpark) -> bool:
    """A worker of file tasks does its work without Java; large workspaces then stay with it."""
    if isinstance(spark, ExternalSpark):
        return True
    try:
        java.find(spark.connect.java)
    except SetupError as error:
        _log.info("spark_not_available", reason=str(error), effect="this process moves everything")
        return False
    return True
