"""Examine a set-up: settings, servers, Java, Spark, the workspace root, clocks and fences.

Each finding says what is right, or what is wrong and how to mend it. Nothing is changed, except on
branches and a tag of its own when rights are tried, which are removed again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase

from perago.conductor.client import ConductorAttempts
from perago.conductor.taskdefs import ConductorTaskDefs
from perago.connections import ConductorConnection, LakeFSConnection, plain_http_warning
from perago.errors import BackendError, BackendUnavailableError, PeragoError
from perago.lakefs.api import LakeFSApi
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import FenceState
from perago.lakefs.garbage import LakeFSGarbage
from perago.lakefs.presigned import PLAIN_HTTP_HINT, PresignedClient
from perago.masking import environment_with_secrets, remember_spark_remote
from perago.operations.fence import FenceAdmin
from perago.operations.findings import Finding
from perago.operations.registration import compare_with_conductor
from perago.operations.rights import try_rights
from perago.operations.root_check import check_root
from perago.operations.server_checks import (
    SPARK_HINT,
    conductor_to_check,
    is_about_lakefs,
    lakefs_errors,
    lakefs_to_check,
    plain_http_warnings,
)
from perago.servers.toolchain import java
from perago.settings import LoadedSettings, Settings, read_settings
from perago.spark.masters import check_master
from perago.spark.runtime import open_runtime
from perago.spark.settings import ExternalSpark, ManagedSpark, SparkOptions, resolve_spark
from perago.tasks.discover import Inspection
from perago.wiring import spark_probe
from perago.wiring.tasks import inspect_targets

# HTTP dates have whole seconds, and an answer takes a while.
_LARGEST_CLOCK_DIFFERENCE = 5.0
_MOST_REPOSITORIES = 20
_MOST_TASKS = 5


@dataclass(frozen=True, slots=True)
class Examination:
    """What to examine besides the settings and the servers that they name."""

    # Modules whose TaskDefs are compared with Conductor's.
    targets: Sequence[str] = ()
    # The repository in which the rights are tried.
    try_in: str | None = None
    # Whether Spark runs a small job, for which managed Spark is started.
    with_job: bool = False

    def findings(self) -> Iterator[Finding]:
        """Yield each finding as soon as it is known."""
        try:
            loaded = read_settings()
        except PeragoError as error:
            yield from _failures("configuration", error)
            yield from _find_java(java.SPARK)
            return
        settings = loaded.settings
        yield from _check_configuration(loaded)
        try:
            lakefs = lakefs_to_check(settings)
        except PeragoError as error:
            lakefs = None
            yield from _failures("LakeFS", error)
        failed = list(lakefs_errors(lakefs)) if lakefs is not None else []
        for setting, why in failed:
            yield _failure("LakeFS", why, setting)
        lakefs_answers = lakefs is not None and not failed
        if lakefs is not None and lakefs_answers:
            yield from self._check_lakefs(lakefs, settings)
        yield from self._check_conductor(settings)
        yield from self._check_spark(settings, lakefs, lakefs_answers=lakefs_answers)
        yield from check_root(settings)

    def _check_lakefs(self, connection: LakeFSConnection, settings: Settings) -> Iterator[Finding]:
        with closing(LakeFSControl(connection)) as lake:
            yield Finding("LakeFS", True, f"{connection.server} answers, {_version_of(lake)}")
            yield from _warn_of_plain_http(connection)
            yield from compare_clocks("LakeFS", lake.clock_difference)
            yield from check_objects(connection, lake, self.try_in)
            with closing(LakeFSGarbage(connection)) as garbage:
                if self.try_in is not None:
                    for right in try_rights(lake, garbage, self.try_in):
                        check = f"LakeFS right to {right.name}"
                        if right.error is None:
                            yield Finding(check, True, f"tried in {self.try_in!r}")
                        else:
                            yield Finding(check, False, str(right.error), right.hint)
                yield from _check_fences(lake, garbage, settings, self.try_in)

    def _check_conductor(self, settings: Settings) -> Iterator[Finding]:
        try:
            connection = conductor_to_check(settings)
        except PeragoError as error:
            yield from _failures("Conductor", error)
            return
        with closing(ConductorAttempts(connection)) as conductor:
            try:
                conductor.assert_answers()
            except BackendError as error:
                yield _failure("Conductor", error, f"CONDUCTOR_SERVER_URL={connection.api}")
                return
            yield Finding("Conductor", True, f"{connection.api} answers, {_version_of(conductor)}")
            yield from _warn_of_plain_http(connection)
            yield from compare_clocks("Conductor", conductor.clock_difference)
        with closing(ConductorTaskDefs(connection)) as taskdefs:
            found = inspect_targets(settings, self.targets)
            yield from self._check_taskdefs(taskdefs, found)
            try:
                registered = taskdefs.response_timeouts()
            except BackendError as error:
                yield _failure("dead workers", error)
                return
            names = {task.name for task in found.tasks} if self.targets else set(registered)
            yield from judge_leases({it: registered[it] for it in registered if it in names})

    def _check_taskdefs(self, conductor: ConductorTaskDefs, found: Inspection) -> Iterator[Finding]:
        for problem in found.problems:
            yield Finding("tasks", False, str(problem), "Correct it; `perago check` shows all.")
        for definition in found.tasks:
            check = f"TaskDef {definition.name!r}"
            try:
                compared = compare_with_conductor(conductor, definition)
            except BackendError as error:
                yield _failure(check, error)
                continue
            if compared.is_error:
                hint = f"Run `perago register {' '.join(self.targets)}`."
                yield Finding(check, False, compared.describe_error(), hint)
            elif compared.differences:
                yield Finding(check, True, f"was tuned in Conductor: {compared.paths}")
            else:
                yield Finding(check, True, "is registered as the code defines it")

    def _check_spark(
        self, settings: Settings, lakefs: LakeFSConnection | None, *, lakefs_answers: bool
    ) -> Iterator[Finding]:
        try:
            spark = (
                resolve_spark(settings, lakefs, SparkOptions(), environment_with_secrets())
                if lakefs is not None
                else None
            )
        except PeragoError as error:
            yield from _failures("Spark", error)
            return
        if isinstance(spark, ExternalSpark):
            remote = spark.remote.get_secret_value()
            remember_spark_remote(remote)
            for finding in _probe_spark(remote, "SPARK_REMOTE", with_job=self.with_job):
                if lakefs_answers or finding.ok or not is_about_lakefs(finding.text):
                    yield finding
            return
        found = list(_find_java(spark.connect.java if spark else java.SPARK))
        if spark is not None and not spark.runs_here:
            found += _find_master(spark)
        yield from found
        if spark is not None and self.with_job and lakefs_answers and all(it.ok for it in found):
            yield from _try_managed(spark)


def judge_leases(seconds: Mapping[str, float]) -> Iterator[Finding]:
    """Say after how many seconds Conductor gives a dead worker's attempts to others, by task."""
    check = "dead workers"
    unnoticed = sorted(name for name in seconds if not seconds[name])
    if unnoticed:
        yield Finding(
            check,
            False,
            f"Conductor never notices one that ran {', '.join(unnoticed[:_MOST_TASKS])}: "
            "responseTimeoutSeconds is 0",
            "Set TimeoutPolicy(response_seconds=…), then run `perago register MODULE`.",
        )
    timed = {name: seconds[name] for name in sorted(seconds) if seconds[name]}
    if not timed:
        return
    least, most = min(timed.values()), max(timed.values())
    slowest = max(timed, key=lambda name: timed[name])
    span = f"{most:g} s" if least == most else f"{least:g} to {most:g} s"
    longest = f", the longest of {slowest!r}" if least != most else ""
    yield Finding(
        check,
        True,
        f"are noticed {span} after their last heartbeat (responseTimeoutSeconds of {len(timed)} "
        f"TaskDef{'' if len(timed) == 1 else 's'}{longest}), and on SQL back ends of Conductor up "
        "to two minutes later",
    )


def compare_clocks(server: str, difference: float | None) -> Iterator[Finding]:
    """Compare a server's clock with this machine's; say nothing where it is not known."""
    if difference is None:
        return
    # The date is cut to whole seconds.
    if abs(difference + 0.5) <= _LARGEST_CLOCK_DIFFERENCE:
        yield Finding(f"{server}'s clock", True, "agrees with this machine's")
        return
    word = "ahead of" if difference > 0 else "behind"
    yield Finding(
        f"{server}'s clock",
        False,
        f"is {abs(difference):.0f} s {word} this machine's",
        "Synchronise both clocks (NTP): ages and deadlines are compared between machines.",
    )


def _check_configuration(loaded: LoadedSettings) -> Iterator[Finding]:
    origins: dict[str, int] = {}
    for value in loaded.values():
        origins[value.origin] = origins.get(value.origin, 0) + 1
    listed = ", ".join(f"{count} from {origin}" for origin, count in origins.items())
    yield Finding("configuration", True, f"settings: {listed} (`perago config show`)")
    for warning in loaded.warnings:
        place, _, fix = warning.partition("; ")
        yield Finding("configuration", False, place, fix[:1].upper() + fix[1:])


def check_objects(
    connection: LakeFSConnection, lake: LakeFSControl, repository: str | None
) -> Iterator[Finding]:
    """Say which way objects move; in a repository, whether their store can be reached."""
    check = "objects"
    with closing(LakeFSApi(connection)) as api, closing(PresignedClient(connection, api)) as client:
        try:
            if not client.can_read():
                asked = connection.transfer == "gateway"
                why = "PERAGO_TRANSFER=gateway" if asked else "its store has no presigned addresses"
                yield Finding(check, True, f"move through LakeFS's S3 gateway: {why}")
            elif repository is None:
                yield Finding(check, True, "move straight to and from LakeFS's object store")
            else:
                store = client.check(repository, lake.default_branch(repository))
                yield Finding(check, True, f"move straight to and from {store}, which answers")
                if warning := plain_http_warning(store):
                    yield Finding(check, False, f"{store}: {warning}", PLAIN_HTTP_HINT)
        except BackendError as error:
            yield _failure(check, error)


def _check_fences(
    lake: LakeFSControl, garbage: LakeFSGarbage, settings: Settings, repository: str | None
) -> Iterator[Finding]:
    """Look for the hard fence in each repository that this worker may work on."""
    try:
        listed = [repository] if repository else _repositories(garbage, settings)
    except BackendError as error:
        yield _failure("hard fence", error)
        return
    fences = FenceAdmin(lake, lambda branch, reason: None)
    for name in listed[:_MOST_REPOSITORIES]:
        check = f"hard fence of {name!r}"
        try:
            state = fences.status(name).state
        except BackendError as error:
            yield _failure(check, error)
            continue
        if state is FenceState.INSTALLED:
            yield Finding(check, True, "is installed")
        elif settings.publish_fence == "soft":
            yield Finding(check, True, f"is {state}; PERAGO_PUBLISH_FENCE=soft does without it")
        else:
            hint = f"Run `perago fence install {name}`."
            yield Finding(check, False, f"is {state}, and PERAGO_PUBLISH_FENCE=hard", hint)
    if len(listed) > _MOST_REPOSITORIES:
        left = len(listed) - _MOST_REPOSITORIES
        yield Finding("hard fence", True, f"{left} more repositories were not looked at")


def _repositories(garbage: LakeFSGarbage, settings: Settings) -> list[str]:
    patterns = [item.partition("/")[0] for item in settings.allowed_workspace_patterns]
    found = garbage.repositories()
    return [name for name in found if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _find_java(need: java.Need) -> Iterator[Finding]:
    try:
        found = java.find(need)
    except PeragoError as error:
        yield from _failures("Java", error)
        return
    yield Finding("Java", True, f"Spark runs on {found}")


def _find_master(spark: ManagedSpark) -> Iterator[Finding]:
    master = spark.connect.master
    try:
        check_master(spark.connect, os.environ)
    except PeragoError as error:
        yield _failure("Spark master", error, master)
        return
    yield Finding("Spark master", True, f"{master} can be reached")


def _try_managed(spark: ManagedSpark) -> Iterator[Finding]:
    with closing(open_runtime(spark)) as runtime:
        try:
            remote = runtime.remote(lambda: False)
            if remote is None:
                raise BackendUnavailableError("Spark is being stopped")
        except PeragoError as error:
            yield from _failures("Spark", error)
            return
        yield from _probe_spark(remote, "managed Spark", with_job=True)


def _probe_spark(remote: str, whose: str, *, with_job: bool) -> Iterator[Finding]:
    try:
        problems = spark_probe.probe(remote, with_job=with_job)
    except PeragoError as error:
        yield _failure("Spark", error, whose)
        return
    for problem in problems:
        yield Finding("Spark", False, f"{whose}: {problem}", SPARK_HINT)
    if not problems:
        job = ", and runs Python functions" if with_job else ""
        yield Finding("Spark", True, f"{whose} reads LakeFS through s3a://{job}")


def _warn_of_plain_http(connection: LakeFSConnection | ConductorConnection) -> Iterator[Finding]:
    for setting, _, warning in plain_http_warnings(connection):
        yield Finding(setting, False, warning, f"Set {setting} to an https:// address.")


def _version_of(server: LakeFSControl | ConductorAttempts) -> str:
    try:
        return f"version {server.read_version()}"
    except BackendError:
        return "and does not tell its version"


def _failures(check: str, error: PeragoError) -> Iterator[Finding]:
    """One finding for each line of an error that names several problems."""
    for line in str(error).splitlines():
        yield Finding(check, False, line, error.hint)


def _failure(check: str, error: PeragoError, setting: str = "") -> Finding:
    return Finding(check, False, f"{setting}: {error}" if setting else str(error), error.hint)
