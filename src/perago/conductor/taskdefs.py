"""TaskDefs in Conductor: read, create, update."""

from __future__ import annotations

from typing import Any

from perago.conductor.api import TASKDEF, ConductorApi, nothing, segment
from perago.connections import ConductorConnection
from perago.errors import NotFoundError
from perago.http_errors import parse_json
from perago.retry import UNSENT_SECONDS


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

    def put(self, taskdef: dict[str, Any], *, exists: bool) -> None:
        """Create or replace a TaskDef."""
        what = f"register TaskDef {taskdef['name']!r}"
        method, body = ("PUT", taskdef) if exists else ("POST", [taskdef])
        self._api.change(
            what, method, "/metadata/taskdefs", body, nothing, unsent_seconds=UNSENT_SECONDS
        )
