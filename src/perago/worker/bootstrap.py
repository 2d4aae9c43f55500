"""The only place that builds adapters: from settings and definitions to jobs and ports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from perago.conductor.connection import ConductorConnection
from perago.errors import ConfigurationError
from perago.lakefs.connection import LakeFSConnection
from perago.protocol.job import DEFAULT_MERGE_TIMEOUT_SECONDS, Job, Policy, Workspace
from perago.settings import Settings
from perago.tasks.definition import TaskDefinition
from perago.tasks.guardrails import check_folder
from perago.tasks.spec import WorkspaceSpec


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
        workspace=_build_workspace(definition.workspace) if definition.workspace else None,
        recovery=definition.controls.recovery,
        merge_timeout_seconds=timeout,
    )


def _build_workspace(spec: WorkspaceSpec) -> Workspace:
    def check_pre(folder: Path) -> None:
        check_folder(spec.pre, folder)

    def check_post(folder: Path) -> None:
        check_folder(spec.post, folder)

    return Workspace(spec.normal_prefix, spec.read_only, check_pre, check_post)


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
    return LakeFSConnection(endpoint, key, secret)


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
