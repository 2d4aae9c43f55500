"""TaskDefs in Conductor: read, create, update."""

from __future__ import annotations

from typing import Any

from conductor.client.http.api.metadata_resource_api import MetadataResourceApi

from perago.conductor.client import connect
from perago.conductor.connection import ConductorConnection
from perago.conductor.errors import translated
from perago.errors import NotFoundError


class ConductorTaskDefs:
    """Task definitions as plain dicts, in Conductor's own spelling."""

    def __init__(self, connection: ConductorConnection) -> None:
        self._api = MetadataResourceApi(connect(connection))
        self._timeout = (connection.connect_timeout, connection.read_timeout)

    def close(self) -> None:
        """Give the connections back."""
        self._api.api_client.rest_client.connection.close()

    def get(self, name: str) -> dict[str, Any] | None:
        """The registered TaskDef, or None."""
        try:
            with translated(f"read TaskDef {name!r}"):
                found = self._api.get_task_def(name, _request_timeout=self._timeout)
        except NotFoundError:
            return None
        return found if isinstance(found, dict) else found.to_dict() if found else None

    def put(self, taskdef: dict[str, Any], *, exists: bool) -> None:
        """Create or replace a TaskDef."""
        with translated(f"register TaskDef {taskdef['name']!r}"):
            if exists:
                self._api.update_task_def(taskdef, _request_timeout=self._timeout)
            else:
                self._api.register_task_def([taskdef], _request_timeout=self._timeout)
