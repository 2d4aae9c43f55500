"""``python -m perago.spark.interrupting``: end an execution's Spark work, for a supervisor."""

from __future__ import annotations

from typing import Any

from perago.spark.child import serve
from perago.spark.session import interrupt


def _handle(request: dict[str, Any]) -> dict[str, Any]:
    remote, execution_id = request["remote"], request["execution_id"]
    return {"interrupted": interrupt(remote, execution_id, alone=request["alone"])}


if __name__ == "__main__":
    serve(_handle)
