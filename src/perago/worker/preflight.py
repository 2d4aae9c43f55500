"""What must hold before the first poll: everything that is wrong is said at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.errors import BackendError, BackendUnavailableError, ConfigurationError, PeragoError
from perago.lakefs.control import LakeFSControl
from perago.operations import registration
from perago.servers.toolchain import java, spark_jars
from perago.servers.toolchain.cache import Cache
from perago.settings import Settings
from perago.spark import child
from perago.spark.settings import ExternalSpark, ManagedSpark
from perago.tasks.definition import TaskDefinition
from perago.tasks.taskdef import taskdef_warnings
from perago.wiring import spark_probe
from perago.wiring.connections import conductor_connection, lakefs_connection

# A cluster may have to start its executors for the first function.
_PROBE_SECONDS = 180.0


@dataclass
class Findings:
    """What a check found. Settings come before servers: they decide the exit code."""

    settings: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def add(self, error: PeragoError) -> None:
        (self.servers if isinstance(error, BackendError) else self.settings).append(str(error))
        self.hints.append(error.hint)

    def raise_if_any(self) -> None:
        lines = "\n".join([*self.settings, *self.servers])
        hint = " ".join(dict.fromkeys(self.hints))
        if self.settings:
            raise ConfigurationError(lines, hint=hint)
        if self.servers:
            raise BackendUnavailableError(lines, hint=hint)


def preflight(
    definitions: Sequence[TaskDefinition],
    settings: Settings,
    *,
    register: bool,
    spark: ExternalSpark | ManagedSpark | None = None,
) -> list[str]:
    """Check settings, servers and TaskDefs; the warnings. Raises with everything else."""
    findings = Findings()
    if any(definition.workspace is not None for definition in definitions):
        _check_lakefs(settings, findings)
    try:
        conductor = ConductorTaskDefs(conductor_connection(settings))
    except ConfigurationError as error:
        findings.add(error)
    else:
        _check_taskdefs(conductor, definitions, findings, register=register)
        conductor.close()
    if spark is not None:
        _check_spark(spark, findings)
    findings.raise_if_any()
    return findings.warnings


def _check_spark(spark: ExternalSpark | ManagedSpark, findings: Findings) -> None:
    """Probe an external server; make sure that a managed one could be started."""
    try:
        if isinstance(spark, ManagedSpark):
            java.find(java.SPARK)
            spark_jars.find_or_fetch(Cache.of_user())
            return
        request = {"remote": spark.remote.get_secret_value()}
        reply = child.ask(spark_probe, request, seconds=_PROBE_SECONDS)
    except PeragoError as error:
        findings.add(error)
        return
    if reply["problems"]:
        findings.settings += [f"SPARK_REMOTE: {problem}" for problem in reply["problems"]]
        findings.hints.append("Have the server's operator set what docs/spark.md lists.")


def _check_lakefs(settings: Settings, findings: Findings) -> None:
    try:
        lake = LakeFSControl(lakefs_connection(settings))
    except ConfigurationError as error:
        findings.add(error)
        return
    try:
        lake.check_access()
    except BackendError as error:
        findings.add(error)
    finally:
        lake.close()


def _check_taskdefs(
    conductor: ConductorTaskDefs,
    definitions: Sequence[TaskDefinition],
    findings: Findings,
    *,
    register: bool,
) -> None:
    for definition in definitions:
        findings.warnings += taskdef_warnings(definition)
        try:
            _check_taskdef(conductor, definition, findings, register=register)
        except BackendError as error:
            findings.add(error)
            return  # the others would say the same


def _check_taskdef(
    conductor: ConductorTaskDefs, definition: TaskDefinition, findings: Findings, *, register: bool
) -> None:
    name = definition.name
    if register:
        registration.register(conductor, definition)
        return
    found = registration.compare_with_conductor(conductor, definition)
    if found.differences is None:
        findings.settings.append(f"task {name!r} is not registered in Conductor")
        findings.hints.append("Run `perago register MODULE`, or start with --register.")
        return
    paths = ", ".join(difference.path for difference in found.differences)
    if found.is_error:
        findings.settings.append(f"task {name!r} is registered with another contract: {paths}")
        findings.hints.append("Run `perago register MODULE`, or start with --register.")
    elif found.differences:
        findings.warnings.append(f"task {name!r} was tuned in Conductor: {paths}")
