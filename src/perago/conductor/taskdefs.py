"""TaskDefs in Conductor: read, create, update."""

from __future__ import annotations

from typing import Any

from conductor.client.http.api.metadata_resource_api import MetadataResourceApi

from perago.conductor.client import connect
from perago.conductor.errors import translated
from perago.connections import ConductorConnection
from perago.errors import NotFoundError


class ConductorTaskDefs:
    """Task definitions as plain dicts, in Conductor's own spelling."""

    def __init__(self, connection: ConductorConnection) -> None:
        self._client = connect(connection)
        self._api = MetadataResourceApi(self._client)
        self._timeout = (connection.connect_timeout, connection.read_timeout)

    def close(self) -> None:
        """Give the connections back; ``contextlib.closing`` calls it."""
        self._client.configuration.http_connection.close()

    def get(self, name: str) -> dict[str, Any] | None:
        """The registered TaskDef as the server wrote it, or None.

        The SDK's model renames every field and drops those that it does not know, which an update
        would then reset; so the answer is taken as plain JSON.
        """
        try:
            with translated(f"read TaskDef {name!r}"):
                found: dict[str, Any] | None = self._client.call_api(
                    "/metadata/taskdefs/{name}",
                    "GET",
                    {"name": name},
                    [],
                    {"Accept": "application/json"},
                    response_type="object",
                    auth_settings=[],
                    _return_http_data_only=True,
                    _request_timeout=self._timeout,
                )
        except NotFoundError:
            return None
        return found or None

    def put(self, taskdef: dict[str, Any], *, exists: bool) -> None:
        """Create or replace a TaskDef."""
        with translated(f"register TaskDef {taskdef['name']!r}"):
            if exists:
                self._api.update_task_def(taskdef, _request_timeout=self._timeout)
            else:
                self._api.register_task_def([taskdef], _request_timeout=self._timeout)
