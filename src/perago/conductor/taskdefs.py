"""TaskDefs in Conductor: read, create, update."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from perago.conductor.api import TASKDEF, ConductorApi, ConductorMessage, Seconds, segment, shallow
from perago.connections import ConductorConnection
from perago.errors import NotFoundError
from perago.http_errors import nothing, parse_json
from perago.retry import UNSENT_SECONDS


class _LeaseMessage(ConductorMessage):
    name: Annotated[str, Field(min_length=1)]
    response_timeout_seconds: Seconds = 0.0


_LEASES = TypeAdapter(list[_LeaseMessage])


class ConductorTaskDefs:
    """Task definitions as plain dicts, in Conductor's own spelling."""

    def __init__(self, connection: ConductorConnection) -> None:
        self._api = ConductorApi(connection)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def get(self, name: str) -> dict[str, Any] | None:
        """The registered TaskDef as the server wrote it, or None.

        Every field is kept, also those that Perago does not know: an update would reset what is
        missing.
        """

        def read(body: bytes) -> dict[str, Any]:
            taskdef = TASKDEF.validate_python(parse_json(body))
            if taskdef.get("name") != name:
                raise ValueError("the answer is not the TaskDef that was asked for")
            return taskdef

        path = f"/metadata/taskdefs/{segment(name)}"
        try:
            return self._api.get(f"read TaskDef {name!r}", path, read)
        except NotFoundError:
            return None

    def response_timeouts(self) -> dict[str, float]:
        """The seconds without a heartbeat after which an attempt is given away, by task."""
        found = self._api.get("list the TaskDefs", "/metadata/taskdefs", shallow(_LEASES)) or []
        return {taskdef.name: taskdef.response_timeout_seconds for taskdef in found}

    def put(self, taskdef: dict[str, Any], *, exists: bool) -> None:
        """Create or replace a TaskDef."""
        what = f"register TaskDef {taskdef['name']!r}"
        method, body = ("PUT", taskdef) if exists else ("POST", [taskdef])
        self._api.change(
            what, method, "/metadata/taskdefs", body, nothing, unsent_seconds=UNSENT_SECONDS
        )
