"""Interrupt the operations of a Spark Connect session and wait until they have ended.

An operation is a job or an active streaming query.

``interruptAll()`` returns at once, while the interrupted operations are still ending, and no public
call of pyspark waits for them. The server's ReattachExecute call, made for clients that lost their
stream, does: it sends the stream of a running operation, or an error if there is no such operation.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

_PAUSE_SECONDS = 0.2
# The operation has ended, and the client that started it was told.
_GONE = ("INVALID_HANDLE", "OPERATION_NOT_FOUND", "OPERATION_ABANDONED", "OPERATION_CANCELED")


def end_operations(session: Any, seconds: float) -> int:
    """Interrupt every operation of a session, wait for their end, and return how many ran.

    Raises ``TimeoutError`` when one has not ended after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    interrupted = _interrupt_all(session, deadline)
    streams = stop_streams(session, deadline)
    # A query may have started an operation in the meantime.
    return interrupted + streams + (_interrupt_all(session, deadline) if streams else 0)


def _interrupt_all(session: Any, deadline: float) -> int:
    seen: set[str] = set()
    # The client's other threads may start an operation while another one is ended.
    while begun := set(session.interruptAll()) - seen:
        seen |= begun
        for operation_id in begun:
            await_end(session, operation_id, deadline)
        if time.monotonic() >= deadline:
            raise TimeoutError("a thread of the body begins one operation after the other")
    return len(seen)


def stop_streams(session: Any, deadline: float) -> int:
    """Stop the active streaming queries of a session; return how many there were.

    No interruption reaches them. By default the server waits without a bound until a query has
    stopped, so each request is made on a thread. Raises ``TimeoutError`` after ``deadline``.
    """
    active = session.streams.active
    for query in active:
        thread = threading.Thread(target=_stop, args=(query,), daemon=True)
        thread.start()
        thread.join(max(deadline - time.monotonic(), _PAUSE_SECONDS))
    if active and (left := session.streams.active):
        raise TimeoutError(f"{len(left)} streaming queries did not stop")
    return len(active)


def _stop(query: Any) -> None:
    # A query that failed raises its error here; what counts is whether it is still active.
    with contextlib.suppress(Exception):
        query.stop()


def await_end(session: Any, operation_id: str, deadline: float) -> None:
    """Wait for the end of an operation; raises ``TimeoutError`` after ``deadline``."""
    while not _has_ended(session.client, operation_id, deadline):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"operation {operation_id} did not end after its interruption")
        time.sleep(_PAUSE_SECONDS)


def _has_ended(client: Any, operation_id: str, deadline: float) -> bool:
    """Follow the operation's stream to its end; False when another client took the stream."""
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
        return any(response.HasField("result_complete") for response in stream)
    except grpc.RpcError as error:
        if any(sign in (error.details() or "") for sign in _GONE):
            return True
        if error.code() in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL}:
            return False
        raise
