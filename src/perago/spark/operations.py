"""Wait for the end of an operation on a Spark Connect server.

``interruptAll()`` answers at once, while the interrupted operations still come to their end. No
public call of pyspark waits for that. The server's own call for clients that lost their stream
does: it gives the stream of a running operation to whoever asks, and says so when there is none.
"""

from __future__ import annotations

import time
from typing import Any

_PAUSE_SECONDS = 0.2
# The operation is over, and its end was told to whoever started it.
_GONE = ("INVALID_HANDLE", "OPERATION_NOT_FOUND", "OPERATION_ABANDONED", "OPERATION_CANCELED")


def end_operations(session: Any, seconds: float) -> int:
    """Interrupt whatever runs in a session and wait for the end of it all; how much ran."""
    deadline = time.monotonic() + seconds
    seen: set[str] = set()
    # A client with threads of its own may start one operation while another is ended.
    while begun := set(session.interruptAll()) - seen:
        seen |= begun
        for operation_id in begun:
            await_end(session, operation_id, deadline)
    return len(seen)


def await_end(session: Any, operation_id: str, deadline: float) -> None:
    """Return when an operation is over; ``TimeoutError`` when it is not by ``deadline``."""
    while not _is_over(session.client, operation_id, deadline):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"operation {operation_id} did not end after its interruption")
        time.sleep(_PAUSE_SECONDS)


def _is_over(client: Any, operation_id: str, deadline: float) -> bool:
    """Follow the operation's stream to its end; False when somebody else took it over."""
    import grpc
    import pyspark.sql.connect.proto as messages

    request = messages.ReattachExecuteRequest(
        session_id=client._session_id,
        operation_id=operation_id,
        client_type=client._builder.userAgent,
    )
    if client._user_id:
        request.user_context.user_id = client._user_id
    left = max(deadline - time.monotonic(), _PAUSE_SECONDS)
    try:
        stream = client._stub.ReattachExecute(
            request, metadata=client._builder.metadata(), timeout=left
        )
        return any(answer.HasField("result_complete") for answer in stream)
    except grpc.RpcError as error:
        if any(sign in (error.details() or "") for sign in _GONE):
            return True
        if error.code() in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL}:
            return False
        raise
