"""The only place that builds adapters: from settings and definitions to jobs and ports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from perago.conductor.client import ConductorAttempts
from perago.conductor.connection import ConductorConnection
from perago.errors import ConfigurationError
from perago.lakefs.connection import Authorities, LakeFSConnection
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.shipment import StoreShipment
from perago.protocol.events import EventSink
from perago.protocol.job import (
    DEFAULT_MERGE_TIMEOUT_SECONDS,
    Job,
    Policy,
    Ports,
    SparkPorts,
    Workspace,
)
from perago.protocol.ports import Attempts
from perago.settings import Settings
from perago.spark.s3a import LakeFSGateway
from perago.spark.sessions import ConnectSessions, OpenSession
from perago.tasks.definition import TaskDefinition
from perago.tasks.guardrails import Guardrail, check_folder, check_spark
from perago.transfer.choice import ChosenBySize, Threshold
from perago.transfer.engine import Engine
from perago.transfer.port import TransferEngine
from perago.transfer.workspaces import LocalWorkspaces


class SystemClock:
    """Real time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def today(self) -> str:
        return datetime.now(UTC).strftime("%Y%m%d")


def build_job(definition: TaskDefinition) -> Job:
    """A task as the life cycle sees it."""
    budget = definition.controls.publish_budget
    timeout = budget.lakefs_merge_timeout_seconds if budget else DEFAULT_MERGE_TIMEOUT_SECONDS
    return Job(
        name=definition.name,
        params_model=definition.params_model,
        result_model=definition.result_model,
        body=definition.function,
        workspace=_build_workspace(definition),
        recovery=definition.controls.recovery,
        merge_timeout_seconds=timeout,
    )


def _build_workspace(definition: TaskDefinition) -> Workspace | None:
    spec = definition.workspace
    if spec is None:
        return None
    kind: Literal["file", "spark"] = "spark" if definition.kind == "spark" else "file"
    check: Callable[[Sequence[Guardrail], Any], None] = (
        check_spark if kind == "spark" else check_folder
    )
    return Workspace(
        prefix=spec.normal_prefix,
        read_only=spec.read_only,
        check_pre=partial(check, spec.pre),
        check_post=partial(check, spec.post),
        kind=kind,
    )


def build_ports(
    settings: Settings,
    *,
    events: EventSink,
    supervise: Callable[[Attempts], Attempts] = lambda attempts: attempts,
    with_lakefs: bool = True,
    open_spark: OpenSession | None = None,
    transfer_session: Callable[[], Any] | None = None,
) -> Ports:
    """Everything outside that an attempt touches; without LakeFS for workspace-free tasks.

    ``open_spark`` opens the Spark session of an execution, for Spark tasks;
    ``transfer_session`` gives the one that moves large workspaces, where Spark sees them.
    """
    attempts = supervise(ConductorAttempts(conductor_connection(settings)))
    clock, policy = SystemClock(), build_policy(settings)
    if not with_lakefs:
        none = _NotConfigured()
        return Ports(none, attempts, none, clock, events, policy)
    lakefs = lakefs_connection(settings)
    objects = LakeFSObjects(lakefs)
    engine = build_engine(settings, lakefs, objects, events, transfer_session)
    workspaces = LocalWorkspaces(settings.workspace_root, engine)
    spark = SparkPorts(ConnectSessions(objects, open_spark), objects) if open_spark else None
    return Ports(LakeFSControl(lakefs), attempts, workspaces, clock, events, policy, spark)


@contextmanager
def local_ports(
    settings: Settings,
    *,
    events: EventSink,
    attempts: Attempts,
    with_lakefs: bool,
    open_spark: OpenSession | None = None,
    transfer_session: Callable[[], Any] | None = None,
) -> Iterator[Ports]:
    """The same without Conductor, for one run, closed at its end."""
    clock = SystemClock()
    policy = replace(build_policy(settings), replacement="off")
    if not with_lakefs:
        none = _NotConfigured()
        yield Ports(none, attempts, none, clock, events, policy)
        return
    lakefs = lakefs_connection(settings)
    with closing(LakeFSControl(lakefs)) as lake, closing(LakeFSObjects(lakefs)) as objects:
        engine = build_engine(settings, lakefs, objects, events, transfer_session)
        workspaces = LocalWorkspaces(settings.workspace_root, engine)
        spark = SparkPorts(ConnectSessions(objects, open_spark), objects) if open_spark else None
        yield Ports(lake, attempts, workspaces, clock, events, policy, spark)


def build_engine(
    settings: Settings,
    lakefs: LakeFSConnection,
    store: LakeFSObjects,
    events: EventSink,
    session: Callable[[], Any] | None = None,
) -> TransferEngine:
    """What moves objects: this process, and with a session Spark for what is large."""
    here = Engine(store, threads=settings.transfer_threads)
    if session is None:
        return here
    # Only now: a worker without Spark need not load it.
    from perago.spark.engine import SparkEngine

    there = SparkEngine(store, StoreShipment(lakefs), session, events)
    return ChosenBySize(here, there, spark_threshold(settings))


def spark_threshold(settings: Settings) -> Threshold:
    """From where on Spark moves a workspace."""
    return Threshold(settings.spark_min_objects, settings.spark_min_bytes)


class _NotConfigured:
    """Stands where no task of this worker needs a LakeFS."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigurationError("LakeFS is not configured for this worker")


def build_policy(settings: Settings) -> Policy:
    return Policy(publish_fence=settings.publish_fence, replacement=settings.replacement)


def lakefs_connection(settings: Settings) -> LakeFSConnection:
    """The LakeFS connection, or an error that names everything missing."""
    endpoint, key = settings.lakefs_endpoint, settings.lakefs_access_key_id
    secret = settings.lakefs_secret_access_key
    if endpoint is None or key is None or secret is None:
        raise _missing(
            {
                "LAKECTL_SERVER_ENDPOINT_URL": endpoint,
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": key,
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": secret,
            }
        )
    bundle = settings.ca_bundle
    return LakeFSConnection(
        endpoint,
        key,
        secret,
        s3_endpoint=settings.lakefs_s3_endpoint,
        authorities=Authorities.read(bundle) if bundle else None,
    )


def lakefs_gateway(settings: Settings) -> LakeFSGateway:
    """The same LakeFS as Spark reaches it."""
    connection = lakefs_connection(settings)
    return LakeFSGateway(
        connection.gateway,
        connection.access_key_id,
        connection.secret_access_key.get_secret_value(),
        settings.ca_bundle,
    )


def conductor_connection(settings: Settings) -> ConductorConnection:
    """The Conductor connection, or an error that says what is missing."""
    url = settings.conductor_server_url
    if url is None:
        raise _missing({"CONDUCTOR_SERVER_URL": url})
    return ConductorConnection(url, settings.conductor_auth_key, settings.conductor_auth_secret)


def _missing(values: dict[str, object]) -> ConfigurationError:
    names: Iterator[str] = (name for name, value in values.items() if value is None)
    return ConfigurationError(
        f"not set: {', '.join(names)}",
        hint='Set them in the environment; for the embedded servers: eval "$(perago dev env)".',
    )
