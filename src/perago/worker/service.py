"""A worker from its command line to its exit code: check, sweep, supervise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial

import structlog

from perago.conductor.client import ConductorAttempts
from perago.lakefs.control import LakeFSControl
from perago.masking import hide_secret_variables
from perago.observability.health import HealthServer
from perago.observability.logs import configure_logs, restore_logs
from perago.observability.metrics import WorkerMetrics
from perago.observability.running import RunningView, WorkerState
from perago.settings import Settings, load_settings
from perago.spark.runtime import open_runtime
from perago.spark.settings import SparkOptions
from perago.tasks.definition import TaskDefinition
from perago.transfer.sweep import Fate, sweep
from perago.wiring.connections import conductor_connection, lakefs_connection
from perago.wiring.spark import choose_spark
from perago.wiring.tasks import load_tasks
from perago.worker import cgroups
from perago.worker.context import WorkerContext, note_unreadable
from perago.worker.preflight import preflight, try_cluster
from perago.worker.supervisor import Supervisor

_PULSE_TIMEOUT = 10.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnState:
    """Implements ``WorkerState`` for this process."""

    context: WorkerContext
    supervisor: Supervisor
    name: str = "this worker"

    def metrics(self) -> str:
        return self.context.metrics.render().decode()

    def running(self) -> Sequence[RunningView]:
        return self.supervisor.running()


# Serves the dashboard of a worker while its context is open, at an address that may be logged.
OpenDashboard = Callable[[Settings, WorkerState], AbstractContextManager[str]]


def serve(
    targets: Sequence[str],
    *,
    executors: int,
    domain: str | None,
    register: bool,
    spark_options: SparkOptions,
    open_dashboard: OpenDashboard | None = None,
) -> int:
    """Run a worker until a signal stops it; its exit code."""
    settings = load_settings()
    # Before the author's modules are imported; executors get them back, for their own settings.
    hide_secret_variables()
    configure_logs(settings)
    definitions = load_tasks(settings, targets)
    restore_logs()  # the author's modules may have configured others
    chosen = choose_spark(settings, definitions, spark_options)
    checked = chosen.spark if chosen is not None and chosen.is_checked_at_start else None
    for warning in preflight(definitions, settings, register=register, spark=checked):
        _log.warning("preflight", warning=warning)
    _sweep(settings)
    with ExitStack() as closing:
        context = _open_context(settings, definitions, domain, closing)
        if chosen is not None:
            _log.info("spark_resolved", **chosen.spark.described())
            context.spark = open_runtime(chosen.spark)
            context.moves_on_spark = chosen.moves_workspaces
            closing.callback(context.spark.close)
            if chosen.is_tried_at_start:
                for warning in try_cluster(context.spark):
                    _log.warning("preflight", warning=warning)
        supervisor = Supervisor(
            context,
            definitions,
            targets,
            slots=executors,
            grace_seconds=_grace(settings, definitions),
        )
        addresses = _servers(settings, definitions)
        closing.enter_context(
            HealthServer.from_settings(
                settings, context.metrics, lambda: supervisor.is_ready, supervisor.running
            )
        )
        if open_dashboard is not None:
            opened = open_dashboard(settings, OwnState(context, supervisor))
            addresses["dashboard"] = closing.enter_context(opened)
        return supervisor.run(addresses)


def _open_context(
    settings: Settings,
    definitions: Sequence[TaskDefinition],
    domain: str | None,
    closing: ExitStack,
) -> WorkerContext:
    connection = conductor_connection(settings)
    metrics = WorkerMetrics(definition.name for definition in definitions)
    conductor = ConductorAttempts(connection, on_unreadable=partial(note_unreadable, metrics))
    closing.callback(conductor.close)
    heartbeat_client = ConductorAttempts(replace(connection, read_timeout=_PULSE_TIMEOUT), tries=1)
    closing.callback(heartbeat_client.close)
    lake = None
    if any(definition.workspace is not None for definition in definitions):
        lake = LakeFSControl(lakefs_connection(settings))
        closing.callback(lake.close)
    for definition in definitions:
        if (budget := definition.controls.publish_budget) is not None:
            metrics.set_publish_budget(definition.name, budget.lakefs_merge_timeout_seconds)
    return WorkerContext(
        conductor,
        heartbeat_client,
        lake,
        settings.workspace_root,
        domain,
        metrics,
        executor_attempts=settings.executor_attempts,
    )


def _sweep(settings: Settings) -> None:
    # First: what still runs could write into a folder that is removed.
    if groups := cgroups.sweep():
        _log.warning("processes_swept", groups=groups)
    for swept in sweep(settings.workspace_root).entries:
        if swept.fate in {Fate.REMOVED, Fate.FAILED, Fate.UNMARKED}:
            _log.info(
                "workspace_swept", path=str(swept.path), fate=swept.fate.value, reason=swept.reason
            )


def _servers(settings: Settings, definitions: Sequence[TaskDefinition]) -> dict[str, str]:
    """The addresses of the servers that these tasks need."""
    needs_lakefs = any(definition.workspace is not None for definition in definitions)
    addresses = {
        "conductor": settings.conductor_server_url,
        "lakefs": settings.lakefs_endpoint if needs_lakefs else None,
    }
    return {name: address for name, address in addresses.items() if address}


def _grace(settings: Settings, definitions: Sequence[TaskDefinition]) -> float:
    """The longest grace that a task's publish budget or the settings ask for."""
    budgets = (definition.controls.publish_budget for definition in definitions)
    wanted = (budget.worker_shutdown_grace_seconds for budget in budgets if budget is not None)
    return max([settings.shutdown_grace_seconds, *wanted])
