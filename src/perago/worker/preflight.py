"""What must hold before the first poll: everything that is wrong is said at once.

The servers are checked side by side, so that each one that is dead or wrong is named, with its
setting, within one time limit for all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.connections import ConductorConnection, LakeFSConnection
from perago.errors import BackendError, BackendUnavailableError, ConfigurationError, PeragoError
from perago.operations import registration
from perago.operations.server_checks import (
    SPARK_HINT,
    conductor_to_check,
    is_about_lakefs,
    lakefs_errors,
    lakefs_to_check,
    plain_http_warnings,
)
from perago.servers.toolchain import java, spark_jars
from perago.servers.toolchain.cache import Cache
from perago.settings import Settings
from perago.spark.masters import check_master
from perago.spark.runtime import SparkRuntime
from perago.spark.settings import ExternalSpark, ManagedSpark
from perago.tasks.definition import TaskDefinition
from perago.tasks.taskdef import taskdef_warnings
from perago.wiring import spark_probe

# For all checks together; each request has a part of it.
_SECONDS = 30.0
# The user of a managed Spark while it is tried.
_PREFLIGHT = "preflight"


@dataclass
class Findings:
    """What a check found. Settings come before servers: they decide the exit code."""

    settings: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def add(self, error: PeragoError, setting: str = "") -> None:
        """Add an error; ``setting`` names the setting that it is about, and its value."""
        text = f"{setting}: {error}" if setting else str(error)
        (self.servers if isinstance(error, BackendError) else self.settings).append(text)
        self.hints.append(error.hint)

    def take(self, other: Findings) -> None:
        """Add what another check found."""
        self.settings += other.settings
        self.servers += other.servers
        self.warnings += other.warnings
        self.hints += other.hints

    @property
    def is_error(self) -> bool:
        return bool(self.settings or self.servers)

    def warn_of_plain_http(self, connection: LakeFSConnection | ConductorConnection) -> None:
        """Add a warning for each address that gets credentials in the clear."""
        for setting, address, warning in plain_http_warnings(connection):
            self.warnings.append(f"{setting}={address}: {warning}")

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

    def check_taskdefs(findings: Findings) -> None:
        _check_conductor(settings, definitions, findings, register=register)

    checks = {"Conductor": _Check("CONDUCTOR_SERVER_URL", check_taskdefs)}
    if any(definition.workspace is not None for definition in definitions):
        endpoint = "LAKECTL_SERVER_ENDPOINT_URL"
        checks["LakeFS"] = _Check(endpoint, lambda found: _check_lakefs(settings, found))
    if isinstance(spark, ExternalSpark):
        external = spark
        checks["Spark"] = _Check("SPARK_REMOTE", lambda found: _check_spark(external, found))
    found = _run(checks)
    if "LakeFS" in found and "Spark" in found and found["LakeFS"].is_error:
        blamed = found["Spark"].settings
        found["Spark"].settings = [line for line in blamed if not is_about_lakefs(line)]
    findings = Findings()
    for name in sorted(found):
        findings.take(found[name])
    if isinstance(spark, ManagedSpark) and not findings.is_error:
        # Not within the time limit: its jars may have to be fetched.
        _check_spark(spark, findings)
    findings.raise_if_any()
    return findings.warnings


def try_cluster(runtime: SparkRuntime) -> list[str]:
    """Start managed Spark on its cluster and run a function there; the warnings.

    A queue that does not exist, a wrong secret or another version of Python shows in no other way.
    A cluster without room at the moment is a warning: its jobs wait, and so would an attempt's.
    """
    try:
        remote = runtime.remote(lambda: False, _PREFLIGHT)
        if remote is None:
            return []
        try:
            problems = spark_probe.probe(remote, with_job=True)
        except BackendUnavailableError as error:
            return [f"no function could be tried on Spark's cluster: {error}"]
    finally:
        runtime.leave(_PREFLIGHT)
    if problems:
        raise ConfigurationError(
            "\n".join(f"Spark's cluster: {problem}" for problem in problems),
            hint="docs/spark.md lists what a cluster must have.",
        )
    return []


@dataclass
class _Check:
    """A check of one server, and the setting that names the server."""

    setting: str
    work: Callable[[Findings], None]
    found: Findings = field(default_factory=Findings)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work(self.found)
        except BaseException as error:  # noqa: BLE001  raised by the thread that waits
            self.error = error


def _run(checks: dict[str, _Check]) -> dict[str, Findings]:
    """Run checks side by side; one that takes too long is an error of its server."""
    # Daemons: what does not answer must not keep the process from ending.
    threads = {
        name: threading.Thread(target=check.run, name=f"preflight-{name}", daemon=True)
        for name, check in checks.items()
    }
    for thread in threads.values():
        thread.start()
    ends = time.monotonic() + _SECONDS
    found = {}
    for name, check in checks.items():
        threads[name].join(max(ends - time.monotonic(), 0.0))
        if threads[name].is_alive():
            late = BackendUnavailableError(f"{name} could not be checked within {_SECONDS:g} s")
            found[name] = Findings()
            found[name].add(late, check.setting)
            continue
        if check.error is not None:
            raise check.error
        found[name] = check.found
    return found


def _check_spark(spark: ExternalSpark | ManagedSpark, findings: Findings) -> None:
    """Probe an external server; make sure that a managed one could be started."""
    try:
        if isinstance(spark, ManagedSpark):
            java.find(spark.connect.java)
            spark_jars.find_or_fetch(Cache.of_user())
            _check_master(spark, findings)
            return
        problems = spark_probe.probe(spark.remote.get_secret_value())
    except PeragoError as error:
        findings.add(error, "SPARK_REMOTE" if isinstance(spark, ExternalSpark) else "")
        return
    if problems:
        findings.settings += [f"SPARK_REMOTE: {problem}" for problem in problems]
        findings.hints.append(SPARK_HINT)


def _check_master(spark: ManagedSpark, findings: Findings) -> None:
    try:
        check_master(spark.connect, os.environ)
    except PeragoError as error:
        findings.add(error, f"PERAGO_SPARK_MASTER={spark.connect.master}")


def _check_lakefs(settings: Settings, findings: Findings) -> None:
    try:
        connection = lakefs_to_check(settings)
    except ConfigurationError as error:
        findings.add(error)
        return
    findings.warn_of_plain_http(connection)
    for setting, failed in lakefs_errors(connection):
        findings.add(failed, setting)


def _check_conductor(
    settings: Settings,
    definitions: Sequence[TaskDefinition],
    findings: Findings,
    *,
    register: bool,
) -> None:
    try:
        connection = conductor_to_check(settings)
    except ConfigurationError as error:
        findings.add(error)
        return
    findings.warn_of_plain_http(connection)
    conductor = ConductorTaskDefs(connection)
    try:
        _check_taskdefs(conductor, definitions, findings, register=register)
    except BackendError as error:
        findings.add(error, f"CONDUCTOR_SERVER_URL={connection.api}")
    finally:
        conductor.close()


def _check_taskdefs(
    conductor: ConductorTaskDefs,
    definitions: Sequence[TaskDefinition],
    findings: Findings,
    *,
    register: bool,
) -> None:
    for definition in definitions:
        findings.warnings += taskdef_warnings(definition)
        _check_taskdef(conductor, definition, findings, register=register)


def _check_taskdef(
    conductor: ConductorTaskDefs, definition: TaskDefinition, findings: Findings, *, register: bool
) -> None:
    name = definition.name
    if register:
        registration.register(conductor, definition)
        return
    found = registration.compare_with_conductor(conductor, definition)
    if found.is_error:
        findings.settings.append(found.describe_error())
        findings.hints.append("Run `perago register MODULE`, or start with --register.")
    elif found.differences:
        findings.warnings.append(f"task {name!r} was tuned in Conductor: {found.paths}")
